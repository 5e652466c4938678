"""The observation of twin nodes, computed from the same feature table by compiled code.

:mod:`stallward.agent.observation.encoder` defines the observation and runs on nodes. For a
thousand simulated nodes its array operations would cost more than the twin; this does the same
arithmetic feature by feature, as the table says. A test holds both to the same numbers.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.desired import SLOTS
from stallward.agent.observation.encoder import HISTORY_S, OBSERVATION_SIZE
from stallward.agent.observation.feature_table import (
    FRAME_FEATURES,
    NODE_FEATURES,
    SLOT_FEATURES,
    Kind,
)
from stallward.agent.observation.latency_baseline import AVERAGED_S, FORGOTTEN_S
from stallward.env.twin.frame import FRAME, Frame
from stallward.env.twin.simd.elementary import exp, log, log_of_one_plus
from stallward.env.twin.simd.jit import model
from stallward.env.twin.simd.layout import Layout, Rows
from stallward.env.twin.simd.one_lane import value_of_lane
from stallward.env.twin.simd.records import local_reader, reader, rows_of
from stallward.env.twin.simd.values import is_nan, maximum, minimum, negate, where

Observations = NDArray[np.float32]

_PER_LN2: Final = 1.0 / math.log(2.0)
_SHORTEST_S: Final = 1e-6
"""Over less time there are no rates."""
_OF_NODE: Final = len(NODE_FEATURES)
_OF_SLOT: Final = len(SLOT_FEATURES)
FEATURES: Final = _OF_NODE + SLOTS * _OF_SLOT
_STALL, _RATE, _LOG, _OVER, _LIMIT, _FLAG = (
    int(kind) for kind in (Kind.STALL, Kind.RATE, Kind.LOG, Kind.OVER, Kind.LIMIT, Kind.FLAG)
)
_HISTORIES: Final = len(HISTORY_S)


def _rows(attribute: str) -> NDArray[np.int64]:
    """Where in a frame the ``column`` or ``scale`` of each feature is."""
    found = []
    for i, feature in enumerate(FRAME_FEATURES):
        first, shape = FRAME.fields[getattr(feature, attribute)]
        found.append(first + (i - _OF_NODE) // _OF_SLOT if shape else first)
    return np.array(found)


def _values(attribute: str) -> NDArray[Any]:
    return np.array([getattr(feature, attribute) for feature in FRAME_FEATURES])


_COLUMNS: Final = _rows("column")
_SCALES: Final = _rows("scale")
_KINDS: Final = _values("kind").astype(np.int64)
_FOLDS: Final = _values("fold")
_MOST: Final = _values("most")
_GAINS: Final = _values("gain")
_PROFILES: Final = np.cumsum(int(Kind.PROFILE) == _KINDS) - 1.0
"""Of the features that ask for a profile, its index."""
_REMEMBERED: Final = np.flatnonzero(_values("remembered"))
_AVERAGES: Final = len(_REMEMBERED)
_ALL_AVERAGES: Final = _HISTORIES * _AVERAGES
_TAUS_S: Final = np.array(HISTORY_S)


class Encoder:
    """What the observation of a node remembers, and its last features."""

    fresh: float
    """1 where no frame was seen yet."""
    time_s: float
    """Of the frame before."""
    known_ms: float
    """Latency that is known as usual at the first frame; NaN where none is."""
    usual_ms: float
    average_ms: float
    averaged_s: float
    counters: Annotated[Rows, FEATURES]
    """In the frame before, of the features that need them."""
    features: Annotated[Rows, FEATURES]
    averages: Annotated[Rows, _ALL_AVERAGES]


ENCODER: Final = Layout(Encoder)
encoder_at: Final = reader(Encoder, ENCODER)
new_encoder: Final = local_reader(Encoder, ENCODER)


@model
def encode(frame: Frame, memory: Encoder, slots: int) -> None:
    """Take a frame in: the features become its, the averages follow.

    Args:
        frame: What the nodes report.
        memory: Of the frames before.
        slots: Slots that any of the nodes has.
    """
    first = memory.fresh > 0.0
    elapsed_s = where(first, 0.0, frame.time_s - memory.time_s)
    per_s = where(elapsed_s > _SHORTEST_S, 1.0 / maximum(elapsed_s, _SHORTEST_S), 0.0)
    _follow_usual(frame, memory, first, maximum(elapsed_s, 0.0))
    for f in range(_OF_NODE):
        memory.features[f] = _feature(rows_of(frame), memory, per_s, f)
    for i in range(slots):
        there = frame.present[i] > 0.0
        for f in range(_OF_NODE + i * _OF_SLOT, _OF_NODE + (i + 1) * _OF_SLOT):
            value = _feature(rows_of(frame), memory, per_s, f)
            memory.features[f] = where(there, value, 0.0)
            memory.counters[f] = where(there, memory.counters[f], math.nan)
    for f in range(_OF_NODE + slots * _OF_SLOT, FEATURES):
        memory.features[f] = 0.0
    for k in range(_HISTORIES):
        share = 1.0 - exp(maximum(elapsed_s, 0.0) / -_TAUS_S[k])
        for j in range(_AVERAGES):
            at = k * _AVERAGES + j
            before = memory.averages[at]
            value = memory.features[_REMEMBERED[j]]
            memory.averages[at] = where(first, value, before + (value - before) * share)
    memory.time_s = frame.time_s
    memory.fresh = 0.0


@model
def _follow_usual(frame: Frame, memory: Encoder, first: bool, elapsed_s: float) -> None:
    """What :class:`stallward.agent.observation.latency_baseline.LatencyBaseline` does."""
    mean_ms, before_ms = frame.latency_mean_ms, memory.average_ms
    there = negate(is_nan(mean_ms))
    begin_ms = where(first | is_nan(before_ms), mean_ms, before_ms)
    share = 1.0 - exp(elapsed_s / -AVERAGED_S)
    average_ms = where(there, begin_ms + (mean_ms - begin_ms) * share, begin_ms)
    averaged_s = where(first, 0.0, memory.averaged_s) + where(there, elapsed_s, 0.0)
    usual_ms = where(first, memory.known_ms, memory.usual_ms * (1.0 + elapsed_s / FORGOTTEN_S))
    lower = there & (averaged_s >= AVERAGED_S) & negate(usual_ms <= average_ms)
    memory.usual_ms = where(lower, average_ms, usual_ms)
    memory.average_ms, memory.averaged_s = average_ms, averaged_s
    frame.usual_ms = memory.usual_ms


@model
def _feature(frame: Rows, memory: Encoder, per_s: float, f: int) -> float:
    """One feature, by its kind; absent is 0."""
    kind, value = _KINDS[f], frame[_COLUMNS[f]]
    if kind <= _RATE:
        growth = maximum(value - memory.counters[f], 0.0)  # one that went back was reset
        growth = where(per_s > 0.0, growth * per_s, 0.0)
        memory.counters[f] = value
        if kind == _STALL:
            found = minimum(growth * 1e-6, _MOST[f])
        else:
            found = log_of_one_plus(growth) / 10.0
    elif kind <= _LIMIT:
        found = value / frame[_SCALES[f]]
        if kind == _LOG:
            known = log(1.0 + found) * _PER_LN2 / _FOLDS[f]
            found = where(is_nan(found), 0.0, known)
        elif kind == _OVER:
            known = log(maximum(where(is_nan(found), 1.0, found), 1.0)) * _PER_LN2 / _FOLDS[f]
            found = where(is_nan(found), 0.0, known)
        elif kind == _LIMIT:
            found = where(is_nan(value), 1.0, found)
        found = where(is_nan(found), 0.0, minimum(found, _MOST[f]) * _GAINS[f])
    elif kind == _FLAG:
        found = where(value > 0.0, 1.0, 0.0)
    else:
        found = where(value == _PROFILES[f], 1.0, 0.0)
    return found


@model
def write_observation(memory: Encoder, out: Observations, at: int, lane: int) -> None:
    """Write the observation of one of the nodes from ``at`` on into its row of ``out``."""
    for f in range(FEATURES):
        out[at + lane, f] = value_of_lane(memory.features[f], lane)
    for f in range(OBSERVATION_SIZE - FEATURES):
        out[at + lane, FEATURES + f] = value_of_lane(memory.averages[f], lane)
