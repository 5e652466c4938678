"""The features of one frame, computed as the table says, for one node.

A node computes one row ten times a second, with caches that others have emptied meanwhile: plain
arithmetic over short lists then costs a third of what array operations of the same number do.
The twin computes the same for thousands of nodes in compiled code
(``stallward.env.simulation.observe``); a test holds both to the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from stallward.agent.observation.feature_table import (
    CONSTANTS,
    FRAME_FEATURES,
    NODE_FEATURES,
    SLOT_FEATURES,
    Feature,
    Kind,
)
from stallward.agent.observation.latency_baseline import LatencyBaseline
from stallward.agent.observation.raw import NODE, SLOT, RawFrame

_SHORTEST_S: Final = 1e-6
"""Over less time there are no rates."""
_INFINITE: Final = 8.0
"""What stands for a value beyond all bounds."""
_TIME: Final = NODE["time_s"]
_MEAN: Final = NODE["latency_mean_ms"]
_PRESENT: Final = SLOT["present"]


class _Plan:
    """The features of a node, or of a slot, by kind; a place is where its feature goes.

    Args:
        features: In the order of their places.
        columns: Where a row has what.
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
        self.flags = [(p, columns[f.column]) for p, f in kinds[Kind.FLAG]]
        profiles = enumerate(kinds[Kind.PROFILE])
        self.profiles = [(p, columns[f.column], float(index)) for index, (p, f) in profiles]


def _columns(*parts: dict[str, int]) -> dict[str, int]:
    """Where what is in a row made of ``parts``; the first part that has a name wins."""
    found: dict[str, int] = {}
    start = 0
    for part in parts:
        found = {name: start + index for name, index in part.items()} | found
        start += len(part)
    return found


_CONSTANT: Final = {name: index for index, name in enumerate(CONSTANTS)}
_USUAL: Final = _CONSTANT["usual_ms"]
_OF_NODE: Final = _Plan(NODE_FEATURES, _columns(NODE, _CONSTANT))
_OF_SLOT: Final = _Plan(SLOT_FEATURES, _columns(SLOT, NODE, _CONSTANT))
_NOTHING: Final = [0.0] * len(FRAME_FEATURES)


class FrameFeatures:
    """Computes the features of one node, keeping the frame before and what latency is usual.

    Args:
        slo_ms: Its latency target.
    """

    def __init__(self, slo_ms: float) -> None:
        self._constants = [*(CONSTANTS | {"slo_ms": float(slo_ms)}).values()]
        self._usual = LatencyBaseline()
        self._before: RawFrame | None = None

    def forget(self) -> None:
        """The next frame has none before it."""
        self._before = None

    def compute(self, frame: RawFrame) -> tuple[list[float], float | None]:
        """The features of one tick.

        Args:
            frame: The raw counters; it is kept, and must not be written any more.

        Returns:
            The features in the order of ``FRAME_NAMES``, finite; and the seconds since the frame
            before, ``None`` without one (there are no rates then: they are 0).
        """
        before = self._before
        self._before = frame
        node, found = frame.node, _NOTHING.copy()
        elapsed_s = None if before is None else node[_TIME] - before.node[_TIME]
        # A counter that went back was reset, and one that is absent is NaN: no rate.
        rates = before is not None and elapsed_s is not None and elapsed_s > _SHORTEST_S
        per_s = 1.0 / elapsed_s if rates and elapsed_s is not None else 0.0
        self._constants[_USUAL] = self._usual.follow(node[_MEAN], elapsed_s)
        around = [*node, *self._constants]
        if rates and before is not None:
            _growths(_OF_NODE, found, 0, node, before.node, per_s)
        _levels(_OF_NODE, found, 0, around)
        first = len(NODE_FEATURES)
        for index, slot in enumerate(frame.slots):
            if slot[_PRESENT] > 0.0:
                if rates and before is not None:
                    _growths(_OF_SLOT, found, first, slot, before.slots[index], per_s)
                _levels(_OF_SLOT, found, first, [*slot, *around])
            first += len(SLOT_FEATURES)
        if not math.isfinite(sum(found)):
            found = [_finite(value) for value in found]
        return found, elapsed_s


def _growths(
    plan: _Plan,
    found: list[float],
    first: int,
    row: Sequence[float],
    before: Sequence[float],
    per_s: float,
) -> None:
    """Stalls and rates."""
    for place, column, most in plan.stalls:
        growth = row[column] - before[column]
        if growth > 0.0:
            found[first + place] = min(growth * per_s * 1e-6, most)
    for place, column in plan.rates:
        growth = row[column] - before[column]
        if growth > 0.0:
            found[first + place] = math.log1p(growth * per_s) / 10.0


def _levels(plan: _Plan, found: list[float], first: int, row: Sequence[float]) -> None:
    """What is a value over its scale, as it is or through a logarithm; and the rest."""
    for place, column, scale, fold, most, gain in plan.logs:
        value = 1.0 + _ratio(row[column], row[scale])
        if value > 0.0:
            found[first + place] = min(math.log2(value) / fold, most) * gain
    for place, column, scale, fold, most in plan.overs:
        ratio = _ratio(row[column], row[scale])
        if ratio > 1.0:
            found[first + place] = min(math.log2(ratio) / fold, most)
    for place, column, scale, most, gain in plan.ratios:
        found[first + place] = min(_ratio(row[column], row[scale]), most) * gain
    for place, column, scale, most, gain in plan.limits:
        value = row[column]
        ratio = 1.0 if math.isnan(value) else _ratio(value, row[scale])
        found[first + place] = min(ratio, most) * gain
    for place, column in plan.flags:
        found[first + place] = 1.0 if row[column] > 0.0 else 0.0
    for place, column, index in plan.profiles:
        found[first + place] = 1.0 if row[column] == index else 0.0


def _ratio(value: float, scale: float) -> float:
    if scale == 0.0:
        return math.copysign(math.inf, value) if value else 0.0
    ratio = value / scale
    return 0.0 if math.isnan(ratio) else ratio


def _finite(value: float) -> float:
    if value == math.inf:
        return _INFINITE
    return value if math.isfinite(value) else 0.0
