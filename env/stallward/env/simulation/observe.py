"""Computes the observations of twin nodes in compiled code, from the same feature table.

:mod:`stallward.agent.observation.encoder` defines the observation and runs on nodes. For a
thousand simulated nodes its array operations would cost more than the twin itself. This module
does the same arithmetic feature by feature, and a test checks that both give the same numbers.
Demand, latency baseline and phases are followed by the same functions (``simd.laws``).
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.desired import SLOTS
from stallward.agent.observation.demand import FORGET_S, followed_demand, known_sum
from stallward.agent.observation.encoder import HISTORY_S
from stallward.agent.observation.feature_table import (
    FRAME_FEATURES,
    NODE_FEATURES,
    PHASE_FEATURES,
    SLOT_FEATURES,
    Kind,
)
from stallward.agent.observation.latency_baseline import LatencyBaseline, follow_latency
from stallward.agent.observation.phase_change import BEGIN, USUAL, PhaseState, follow_phase
from stallward.env.twin.frame import FRAME, Frame
from stallward.env.twin.physics.state import PerSlot
from stallward.env.twin.simd.elementary import exp, log, log_of_one_plus
from stallward.env.twin.simd.jit import model
from stallward.env.twin.simd.laws import law
from stallward.env.twin.simd.layout import Layout, Rows
from stallward.env.twin.simd.one_lane import value_of_lane
from stallward.env.twin.simd.records import local_reader, reader, rows_of
from stallward.env.twin.simd.values import is_nan, maximum, minimum, negate, where

for _rule in (known_sum, followed_demand, follow_latency, follow_phase):
    law(_rule)


class PhaseMemory:
    """The fields of :class:`~stallward.agent.observation.phase_change.PhaseState` of each slot."""

    mean: PerSlot
    above: PerSlot
    below: PerSlot
    lowest: PerSlot
    highest: PerSlot
    still_s: PerSlot
    since_change_s: PerSlot


@model
def _set_phase(frame: Frame, memory: PhaseMemory, i: int, first: bool, passed_s: float) -> None:
    """Follow the size of a slot, and set the columns of its phase in the frame."""
    usage = frame.usage_bytes[i]
    held = where(is_nan(usage), math.nan, known_sum(usage, frame.swap_bytes[i]))
    state = PhaseState(
        where(first, BEGIN.mean, memory.mean[i]),
        where(first, BEGIN.above, memory.above[i]),
        where(first, BEGIN.below, memory.below[i]),
        where(first, BEGIN.lowest, memory.lowest[i]),
        where(first, BEGIN.highest, memory.highest[i]),
        where(first, BEGIN.still_s, memory.still_s[i]),
        where(first, BEGIN.since_change_s, memory.since_change_s[i]),
    )
    state = follow_phase(state, where(frame.present[i] > 0.0, held, 0.0), passed_s, USUAL)
    memory.mean[i], memory.above[i], memory.below[i] = state.mean, state.above, state.below
    memory.lowest[i], memory.highest[i] = state.lowest, state.highest
    memory.still_s[i], memory.since_change_s[i] = state.still_s, state.since_change_s
    in_phase = negate(is_nan(state.mean))
    frame.in_phase[i] = where(in_phase, 1.0, 0.0)
    frame.phase_bytes[i] = where(in_phase, exp(state.mean), 0.0)
    frame.since_phase_change_s[i] = state.since_change_s


Observations = NDArray[np.float32]

_PER_LN2: Final = 1.0 / math.log(2.0)
_SHORTEST_S: Final = 1e-6
"""Over a shorter time, rates are 0."""
_NODE_FEATURES: Final = len(NODE_FEATURES)
_SLOT_FEATURES: Final = len(SLOT_FEATURES)
_PHASE_FEATURES: Final = len(PHASE_FEATURES)
_IN_FRAME: Final = _NODE_FEATURES + SLOTS * _SLOT_FEATURES
"""How many features a frame has that averages may be taken of."""
_TABLE: Final = FRAME_FEATURES + PHASE_FEATURES * SLOTS
FEATURES: Final = len(_TABLE)
_STALL, _RATE, _LOG, _OVER, _LIMIT, _ROOM, _FLAG = (
    int(kind)
    for kind in (
        Kind.STALL, Kind.RATE, Kind.LOG, Kind.OVER, Kind.LIMIT, Kind.ROOM, Kind.FLAG,
    )
)  # fmt: skip
_HISTORIES: Final = len(HISTORY_S)


def _rows(attribute: str) -> NDArray[np.int64]:
    """The row of a frame that holds the ``column`` or ``scale`` of each feature."""
    rows = []
    for i, feature in enumerate(_TABLE):
        first, shape = FRAME.fields[getattr(feature, attribute)]
        rows.append(first + _slot_of(i) if shape else first)
    return np.array(rows)


def _slot_of(i: int) -> int:
    """The slot that a feature of a slot belongs to."""
    if i >= _IN_FRAME:
        return (i - _IN_FRAME) // _PHASE_FEATURES
    return (i - _NODE_FEATURES) // _SLOT_FEATURES


def _values(attribute: str) -> NDArray[Any]:
    return np.array([getattr(feature, attribute) for feature in _TABLE])


_COLUMNS: Final = _rows("column")
_SCALES: Final = _rows("scale")
_KINDS: Final = _values("kind").astype(np.int64)
_FOLDS: Final = _values("fold")
_MOST: Final = _values("most")
_GAINS: Final = _values("gain")
_PROFILES: Final = np.cumsum(int(Kind.PROFILE) == _KINDS) - 1.0
"""For each feature that flags a tuning profile, the index of the profile."""
_REMEMBERED: Final = np.flatnonzero(_values("remembered"))
_AVERAGES: Final = len(_REMEMBERED)
_ALL_AVERAGES: Final = _HISTORIES * _AVERAGES
_TAUS_S: Final = np.array(HISTORY_S)


class Encoder(PhaseMemory, LatencyBaseline):
    """The state of a node's encoder: its last features, and its memory of earlier frames."""

    fresh: float
    """1 before the first frame, else 0."""
    time_s: float
    """Time of the frame before."""
    known_ms: float
    """Latency baseline known before the first frame; NaN for none."""
    demand_bytes: float
    """The application's demand."""
    counters: Annotated[Rows, FEATURES]
    """The counters of the frame before, for the features that are rates."""
    features: Annotated[Rows, FEATURES]
    averages: Annotated[Rows, _ALL_AVERAGES]


ENCODER: Final = Layout(Encoder)
encoder_at: Final = reader(Encoder, ENCODER)
new_encoder: Final = local_reader(Encoder, ENCODER)


@model
def encode(frame: Frame, memory: Encoder, slots: int) -> None:
    """Encode a frame: compute its features and move the remembered averages towards them.

    Args:
        frame: What the nodes report.
        memory: The encoder's state; it is updated.
        slots: How many slots are in use on any of the nodes.
    """
    first = memory.fresh > 0.0
    elapsed_s = where(first, 0.0, frame.time_s - memory.time_s)
    per_s = where(elapsed_s > _SHORTEST_S, 1.0 / maximum(elapsed_s, _SHORTEST_S), 0.0)
    passed_s = maximum(elapsed_s, 0.0)
    memory.average_ms = where(first, math.nan, memory.average_ms)
    memory.averaged_s = where(first, 0.0, memory.averaged_s)
    memory.usual_ms = where(first, memory.known_ms, memory.usual_ms)
    follow_latency(memory, frame.latency_mean_ms, passed_s)
    frame.usual_ms = memory.usual_ms
    memory.demand_bytes = frame.demand_bytes = followed_demand(
        where(first, 0.0, memory.demand_bytes),
        frame.protected_usage_bytes,
        frame.protected_swap_bytes,
        frame.protected_working_set_bytes,
        FORGET_S,
        passed_s,
    )
    _measure_room(frame, slots)
    for i in range(slots):
        _set_phase(frame, memory, i, first, passed_s)
    for f in range(_NODE_FEATURES):
        memory.features[f] = _feature(rows_of(frame), memory, per_s, f)
    for i in range(slots):
        there = frame.present[i] > 0.0
        for f in range(
            _NODE_FEATURES + i * _SLOT_FEATURES, _NODE_FEATURES + (i + 1) * _SLOT_FEATURES
        ):
            value = _feature(rows_of(frame), memory, per_s, f)
            memory.features[f] = where(there, value, 0.0)
            memory.counters[f] = where(there, memory.counters[f], math.nan)
        for f in range(_IN_FRAME + i * _PHASE_FEATURES, _IN_FRAME + (i + 1) * _PHASE_FEATURES):
            value = _feature(rows_of(frame), memory, per_s, f)
            memory.features[f] = where(there, value, 0.0)
    for f in range(_NODE_FEATURES + slots * _SLOT_FEATURES, _IN_FRAME):
        memory.features[f] = 0.0
    for f in range(_IN_FRAME + slots * _PHASE_FEATURES, FEATURES):
        memory.features[f] = 0.0
    for k in range(_HISTORIES):
        share = 1.0 - exp(passed_s / -_TAUS_S[k])
        for j in range(_AVERAGES):
            at = k * _AVERAGES + j
            before = memory.averages[at]
            value = memory.features[_REMEMBERED[j]]
            memory.averages[at] = where(first, value, before + (value - before) * share)
    memory.time_s = frame.time_s
    memory.fresh = 0.0


@model
def _measure_room(frame: Frame, slots: int) -> None:
    """Set the room that the demand leaves, and what the slots want."""
    frame.room_bytes = maximum(frame.zone_limit_bytes - frame.demand_bytes, 0.0)
    frame.wanted_bytes = 0.0
    for i in range(slots):
        held = known_sum(frame.usage_bytes[i], frame.swap_bytes[i])
        frame.wanted_bytes = frame.wanted_bytes + where(frame.present[i] > 0.0, held, 0.0)


@model
def _feature(frame: Rows, memory: Encoder, per_s: float, f: int) -> float:
    """Compute one feature by its kind; 0 where its column is absent."""
    kind, value = _KINDS[f], frame[_COLUMNS[f]]
    if kind <= _RATE:
        growth = maximum(value - memory.counters[f], 0.0)  # a counter that went back was reset
        growth = where(per_s > 0.0, growth * per_s, 0.0)
        memory.counters[f] = value
        if kind == _STALL:
            feature = minimum(growth * 1e-6, _MOST[f])
        else:
            feature = log_of_one_plus(growth) / 10.0
    elif kind <= _ROOM:
        scale = frame[_SCALES[f]]
        feature = value / scale
        if kind == _LOG:
            known = log(1.0 + feature) * _PER_LN2 / _FOLDS[f]
            feature = where(is_nan(feature), 0.0, known)
        elif kind == _OVER:
            ratio = where(is_nan(feature), 1.0, feature)
            known = log(maximum(ratio, 1.0)) * _PER_LN2 / _FOLDS[f]
            feature = where(is_nan(feature), 0.0, known)
        elif kind == _LIMIT:
            feature = where(is_nan(value), 1.0, feature)
        elif kind == _ROOM:
            feature = where(scale == 0.0, _MOST[f], feature)
        feature = where(is_nan(feature), 0.0, minimum(feature, _MOST[f]) * _GAINS[f])
    elif kind == _FLAG:
        feature = where(value > 0.0, 1.0, 0.0)
    else:
        feature = where(value == _PROFILES[f], 1.0, 0.0)
    return feature


@model
def write_observation(memory: Encoder, out: Observations, at: int, lane: int) -> None:
    """Write the observation of node ``at + lane`` into its row of ``out``."""
    for f in range(_IN_FRAME):
        out[at + lane, f] = value_of_lane(memory.features[f], lane)
    for f in range(_ALL_AVERAGES):
        out[at + lane, _IN_FRAME + f] = value_of_lane(memory.averages[f], lane)
    for f in range(FEATURES - _IN_FRAME):
        phase = value_of_lane(memory.features[_IN_FRAME + f], lane)
        out[at + lane, _IN_FRAME + _ALL_AVERAGES + f] = phase
