"""The features of one frame of one node, computed from the table.

A node computes one row ten times a second, and meanwhile other programs evict it from the CPU's
caches. Plain arithmetic over short lists then takes a third of the time of as many array
operations. The twin computes the same features for thousands of nodes in compiled code
(``stallward.env.simulation.observe``); a test checks that both give the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from stallward.agent.desired import SLOTS
from stallward.agent.observation.demand import FORGET_S, followed_demand, known_sum
from stallward.agent.observation.feature_table import (
    CONSTANTS,
    FRAME_FEATURES,
    NODE_FEATURES,
    PHASE_COLUMNS,
    PHASE_FEATURES,
    SLOT_FEATURES,
    Feature,
    Kind,
)
from stallward.agent.observation.latency_baseline import LatencyBaseline, follow_latency
from stallward.agent.observation.phase_change import PhaseDetector
from stallward.agent.observation.raw import NODE, SLOT, RawFrame

_SHORTEST_S: Final = 1e-6
"""Two frames closer together than this give no rates."""
_INFINITE: Final = 8.0
"""The feature for an infinite value."""
_TIME: Final = NODE["time_s"]
_MEAN: Final = NODE["latency_mean_ms"]
_ZONE: Final = NODE["zone_limit_bytes"]
_PROTECTED: Final = NODE["protected_usage_bytes"]
_PROTECTED_SWAP: Final = NODE["protected_swap_bytes"]
_WORKING_SET: Final = NODE["protected_working_set_bytes"]
_PRESENT: Final = SLOT["present"]
_USAGE: Final = SLOT["usage_bytes"]
_SWAP: Final = SLOT["swap_bytes"]


class _FeaturePlan:
    """The features of a node, or of a slot, by kind: for each its place, columns and numbers.

    Args:
        features: In the order of their places among the results.
        columns: The index of each column in a row.
    """

    def __init__(self, features: tuple[Feature, ...], columns: dict[str, int]) -> None:
        kinds: dict[Kind, list[tuple[int, Feature]]] = {kind: [] for kind in Kind}
        for place, feature in enumerate(features):
            kinds[feature.kind].append((place, feature))
        self.stalls = [(p, columns[f.column], f.most) for p, f in kinds[Kind.STALL]]
        self.rates = [(p, columns[f.column]) for p, f in kinds[Kind.RATE]]
        self.logs = [
            (p, columns[f.column], columns[f.scale], f.fold, f.most, f.gain)
            for p, f in kinds[Kind.LOG]
        ]
        self.overs = [
            (p, columns[f.column], columns[f.scale], f.fold, f.most) for p, f in kinds[Kind.OVER]
        ]
        self.ratios = [
            (p, columns[f.column], columns[f.scale], f.most, f.gain) for p, f in kinds[Kind.RATIO]
        ]
        self.limits = [
            (p, columns[f.column], columns[f.scale], f.most, f.gain) for p, f in kinds[Kind.LIMIT]
        ]
        self.rooms = [
            (p, columns[f.column], columns[f.scale], f.most, f.gain) for p, f in kinds[Kind.ROOM]
        ]
        self.flags = [(p, columns[f.column]) for p, f in kinds[Kind.FLAG]]
        profiles = enumerate(kinds[Kind.PROFILE])
        self.profiles = [(p, columns[f.column], float(index)) for index, (p, f) in profiles]


def _columns(*parts: dict[str, int]) -> dict[str, int]:
    """The column of each name in a row made of ``parts``; the first part that has a name wins."""
    columns: dict[str, int] = {}
    start = 0
    for part in parts:
        columns = {name: start + index for name, index in part.items()} | columns
        start += len(part)
    return columns


_CONSTANT: Final = {name: index for index, name in enumerate(CONSTANTS)}
_BASELINE: Final = _CONSTANT["usual_ms"]
_SLO: Final = _CONSTANT["slo_ms"]
_DEMAND: Final = _CONSTANT["demand_bytes"]
_ROOM: Final = _CONSTANT["room_bytes"]
_WANTED: Final = _CONSTANT["wanted_bytes"]
_NODE_PLAN: Final = _FeaturePlan(NODE_FEATURES, _columns(NODE, _CONSTANT))
_PHASE: Final = {name: index for index, name in enumerate(PHASE_COLUMNS)}
_OF_SLOT: Final = _columns(SLOT, NODE, _CONSTANT, _PHASE)
_SLOT_PLAN: Final = _FeaturePlan(SLOT_FEATURES, _OF_SLOT)
_PHASE_PLAN: Final = _FeaturePlan(PHASE_FEATURES, _OF_SLOT)
_ZEROS: Final = [0.0] * len(FRAME_FEATURES)
_NO_PHASES: Final = [0.0] * (SLOTS * len(PHASE_FEATURES))


class FrameFeatures:
    """Computes the features of one node.

    It keeps the previous frame, the latency baseline, the demand, and the phases of the slots.

    Args:
        slo_ms: The latency target of the node.
        demand_bytes: The demand to begin with.
    """

    def __init__(self, slo_ms: float, demand_bytes: float = 0.0) -> None:
        self._constants = [*(CONSTANTS | {"slo_ms": float(slo_ms)}).values()]
        self._start_bytes = demand_bytes
        self.reset()

    def retarget(self, slo_ms: float) -> None:
        """Go on with another latency target."""
        self._constants[_SLO] = float(slo_ms)

    def reset(self) -> None:
        """Forget the previous frame; the next one is treated as the first."""
        self._baseline = LatencyBaseline()
        self._demand_bytes = self._start_bytes
        self._phases = [PhaseDetector() for _ in range(SLOTS)]
        self._previous: RawFrame | None = None

    def compute(self, frame: RawFrame) -> tuple[list[float], list[float], float | None]:
        """The features of one tick.

        Args:
            frame: The raw counters. The frame is kept, so it must not be changed afterwards.

        Returns:
            The features in the order of ``FRAME_NAMES``, finite; the ``PHASE_FEATURES`` of each
            slot, finite; and the seconds since the previous frame. Without one the seconds are
            ``None`` and all rates are 0.
        """
        previous = self._previous
        self._previous = frame
        node, features, phases = frame.node, _ZEROS.copy(), _NO_PHASES.copy()
        elapsed_s = None if previous is None else node[_TIME] - previous.node[_TIME]
        # A counter that went back was reset, and an absent one is NaN: neither gives a rate.
        rates = previous is not None and elapsed_s is not None and elapsed_s > _SHORTEST_S
        per_s = 1.0 / elapsed_s if rates and elapsed_s is not None else 0.0
        passed_s = max(elapsed_s or 0.0, 0.0)
        follow_latency(self._baseline, node[_MEAN], passed_s)
        self._constants[_BASELINE] = self._baseline.usual_ms
        self._measure_room(frame, passed_s)
        node_row = [*node, *self._constants]
        if rates and previous is not None:
            _set_rates(_NODE_PLAN, features, 0, node, previous.node, per_s)
        _set_levels(_NODE_PLAN, features, 0, node_row)
        first = len(NODE_FEATURES)
        for index, slot in enumerate(frame.slots):
            phase = self._follow_phase(index, slot, passed_s)
            if slot[_PRESENT] > 0.0:
                if rates and previous is not None:
                    _set_rates(_SLOT_PLAN, features, first, slot, previous.slots[index], per_s)
                row = [*slot, *node_row, *phase]
                _set_levels(_SLOT_PLAN, features, first, row)
                _set_levels(_PHASE_PLAN, phases, index * len(PHASE_FEATURES), row)
            first += len(SLOT_FEATURES)
        if not math.isfinite(sum(features)):
            features = [_finite(value) for value in features]
        if not math.isfinite(sum(phases)):
            phases = [_finite(value) for value in phases]
        return features, phases, elapsed_s

    def _follow_phase(
        self, index: int, slot: Sequence[float], elapsed_s: float
    ) -> tuple[float, float, float]:
        """Take one more look at the size of a slot; the ``PHASE_COLUMNS`` then.

        A slot without a group holds nothing; one whose memory cannot be read keeps its phase.
        """
        held = slot[_USAGE] if math.isnan(slot[_USAGE]) else known_sum(slot[_USAGE], slot[_SWAP])
        detector = self._phases[index]
        detector.update(held if slot[_PRESENT] > 0.0 else 0.0, elapsed_s)
        size_bytes = detector.phase_bytes
        return float(size_bytes is not None), size_bytes or 0.0, detector.since_change_s

    def _measure_room(self, frame: RawFrame, elapsed_s: float) -> None:
        """Set the demand, the room that it leaves, and what the slots want."""
        node, constants = frame.node, self._constants
        demand = self._demand_bytes = followed_demand(
            self._demand_bytes,
            node[_PROTECTED],
            node[_PROTECTED_SWAP],
            node[_WORKING_SET],
            FORGET_S,
            elapsed_s,
        )
        wanted = 0.0
        for slot in frame.slots:
            if slot[_PRESENT] > 0.0:
                wanted += known_sum(slot[_USAGE], slot[_SWAP])
        constants[_DEMAND], constants[_WANTED] = demand, wanted
        constants[_ROOM] = max(0.0, node[_ZONE] - demand)


def _set_rates(
    plan: _FeaturePlan,
    features: list[float],
    first: int,
    row: Sequence[float],
    previous: Sequence[float],
    per_s: float,
) -> None:
    """Set the features that come from the growth of counters: stalls and rates."""
    for place, column, most in plan.stalls:
        growth = row[column] - previous[column]
        if growth > 0.0:
            features[first + place] = min(growth * per_s * 1e-6, most)
    for place, column in plan.rates:
        growth = row[column] - previous[column]
        if growth > 0.0:
            features[first + place] = math.log1p(growth * per_s) / 10.0


def _set_levels(
    plan: _FeaturePlan, features: list[float], first: int, row: Sequence[float]
) -> None:
    """Set the features that come from the values of one row."""
    for place, column, scale, fold, most, gain in plan.logs:
        value = 1.0 + _ratio(row[column], row[scale])
        if value > 0.0:
            features[first + place] = min(math.log2(value) / fold, most) * gain
    for place, column, scale, fold, most in plan.overs:
        ratio = _ratio(row[column], row[scale])
        if ratio > 1.0:
            features[first + place] = min(math.log2(ratio) / fold, most)
    for place, column, scale, most, gain in plan.ratios:
        features[first + place] = min(_ratio(row[column], row[scale]), most) * gain
    for place, column, scale, most, gain in plan.limits:
        value = row[column]
        ratio = 1.0 if math.isnan(value) else _ratio(value, row[scale])
        features[first + place] = min(ratio, most) * gain
    for place, column, scale, most, gain in plan.rooms:
        ratio = _ratio(row[column], row[scale]) if row[scale] else most
        features[first + place] = min(ratio, most) * gain
    for place, column in plan.flags:
        features[first + place] = 1.0 if row[column] > 0.0 else 0.0
    for place, column, index in plan.profiles:
        features[first + place] = 1.0 if row[column] == index else 0.0


def _ratio(value: float, scale: float) -> float:
    if scale == 0.0:
        return math.copysign(math.inf, value) if value else 0.0
    ratio = value / scale
    return 0.0 if math.isnan(ratio) else ratio


def _finite(value: float) -> float:
    if value == math.inf:
        return _INFINITE
    return value if math.isfinite(value) else 0.0
