"""Computing the features of frames, of one node or of many at once.

A node computes one row ten times a second, with caches that others have filled meanwhile; the
twin computes thousands of rows. Both want few and wide array operations, so features of one
kind are computed together. Every operation is elementwise: a row gives the same bits alone as
in a batch.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.desired import PROFILES, SLOTS
from stallward.agent.feature_table import (
    CONSTANTS,
    FRAME_FEATURES,
    NODE_FEATURES,
    SLOT_FEATURES,
    Kind,
)
from stallward.agent.raw import NODE, NODE_COLUMNS, SLOT, SLOT_COLUMNS, RawFrame

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

_NODE_SIZE: Final = len(NODE_COLUMNS)
_RAW_SIZE: Final = _NODE_SIZE + SLOTS * len(SLOT_COLUMNS)
_PRESENT: Final = slice(_NODE_SIZE + SLOT["present"], _RAW_SIZE, len(SLOT_COLUMNS))
_PROFILE_INDEX: Final = np.arange(len(PROFILES), dtype=np.float64)
_SHORTEST_S: Final = 1e-6
"""Over less time there are no rates."""

_SORTED: Final = sorted(range(len(FRAME_FEATURES)), key=lambda i: FRAME_FEATURES[i].kind)
"""The features by kind: the order in which they are computed."""
_FRAME_ORDER: Final = np.argsort(_SORTED)
"""From there back to the order of the frame."""


def _span(first: Kind, last: Kind) -> slice:
    """The features of these kinds, in the order of computing."""
    inside = [first <= FRAME_FEATURES[i].kind <= last for i in _SORTED]
    return slice(inside.index(True), inside.index(True) + sum(inside))


def _positions(span: slice, attribute: str) -> NDArray[np.intp]:
    """Where the ``column`` or ``scale`` of these features is in a row: node, slots, constants."""
    found = []
    for i in _SORTED[span]:
        name = getattr(FRAME_FEATURES[i], attribute)
        slot = (i - len(NODE_FEATURES)) // len(SLOT_FEATURES)
        if name in CONSTANTS:
            found.append(_RAW_SIZE + list(CONSTANTS).index(name))
        elif slot >= 0 and name in SLOT:
            found.append(_NODE_SIZE + slot * len(SLOT_COLUMNS) + SLOT[name])
        else:
            found.append(NODE[name])
    return np.array(found)


def _numbers(span: slice, attribute: str) -> Array:
    return np.array([getattr(FRAME_FEATURES[i], attribute) for i in _SORTED[span]])


_STALLS: Final = _span(Kind.STALL, Kind.STALL)
_RATES: Final = _span(Kind.RATE, Kind.RATE)
_LOGS: Final = _span(Kind.LOG, Kind.LOG)
_LEVELS: Final = _span(Kind.LOG, Kind.LIMIT)
_LIMITS: Final = _span(Kind.LIMIT, Kind.LIMIT)
_FLAGS: Final = _span(Kind.FLAG, Kind.FLAG)
_PROFILES: Final = _span(Kind.PROFILE, Kind.PROFILE)

_COUNTERS: Final = np.concatenate(
    [[NODE["time_s"]], _positions(_STALLS, "column"), _positions(_RATES, "column")]
)
_VALUES: Final = _positions(_LEVELS, "column")
_SCALES: Final = _positions(_LEVELS, "scale")
_LIMIT_COLUMNS: Final = _positions(_LIMITS, "column")
_FLAG_COLUMNS: Final = _positions(_FLAGS, "column")
_FOLDS: Final = _numbers(_LOGS, "fold")
_MOST_STALLS: Final = _numbers(_STALLS, "most")
_MOST: Final = _numbers(_LEVELS, "most")
_GAINS: Final = _numbers(_LEVELS, "gain")


class FrameFeatures:
    """Computes the features of a batch of nodes, keeping the counters of the frame before.

    Args:
        slo_ms: Latency target of each node, shape ``(B,)``.
    """

    def __init__(self, slo_ms: Array) -> None:
        batch = slo_ms.size
        self._row = np.zeros((batch, _RAW_SIZE + len(CONSTANTS)))
        self._node = self._row[:, :_NODE_SIZE]
        self._slots = self._row[:, _NODE_SIZE:_RAW_SIZE].reshape(batch, SLOTS, -1)
        self._row[:, _RAW_SIZE:] = list(CONSTANTS.values())
        self.slo_ms = self._row[:, _RAW_SIZE + list(CONSTANTS).index("slo_ms")]
        """Shape ``(B,)``; may be written."""
        self.slo_ms[:] = slo_ms
        self._counters = np.zeros((batch, _COUNTERS.size))
        self._sorted = np.zeros((batch, len(FRAME_FEATURES)))

    def compute(self, frame: RawFrame, fresh: Mask | None) -> tuple[Array, Array]:
        """The features of one tick.

        Args:
            frame: The raw counters.
            fresh: The rows without a frame before, which have no rates (they are 0).

        Returns:
            The features in the order of ``FRAME_NAMES``, shape ``(B, len(FRAME_NAMES))``,
            finite; and the seconds since the frame before, shape ``(B, 1)``.
        """
        self._node[:] = frame.node
        self._slots[:] = frame.slots
        # Absent values are NaN until the last step makes them 0; they must not warn on the way.
        with np.errstate(all="ignore"):
            elapsed_s = self._compute_growths(fresh)
            self._compute_levels()
        self._sorted[:, _FLAGS] = self._row[:, _FLAG_COLUMNS] > 0.0
        profile = self._row[:, NODE["profile_index"], None]
        self._sorted[:, _PROFILES] = profile == _PROFILE_INDEX
        features = self._sorted.take(_FRAME_ORDER, axis=1)
        absent = ~(self._row[:, _PRESENT] > 0.0)
        of_slots = features[:, len(NODE_FEATURES) :].reshape(*absent.shape, -1)
        of_slots[absent] = 0.0
        if not np.isfinite(features).all():
            np.nan_to_num(features, copy=False, nan=0.0, posinf=8.0, neginf=0.0)
        return features, elapsed_s

    def _compute_growths(self, fresh: Mask | None) -> Array:
        """Stalls and rates; returns the seconds passed."""
        counters = self._row.take(_COUNTERS, axis=1)
        if fresh is not None:
            self._counters[fresh] = counters[fresh]
        growth = counters - self._counters
        self._counters = counters
        elapsed_s, growth = growth[:, :1], growth[:, 1:]
        per_s = np.where(elapsed_s > _SHORTEST_S, 1.0 / np.maximum(elapsed_s, _SHORTEST_S), 0.0)
        np.maximum(growth, 0.0, out=growth)  # a counter that went back was reset: no rate
        growth *= per_s
        stalls, rates = growth[:, _STALLS], growth[:, _RATES]
        stalls *= 1e-6
        np.minimum(stalls, _MOST_STALLS, out=self._sorted[:, _STALLS])
        np.divide(np.log1p(rates, out=rates), 10.0, out=self._sorted[:, _RATES])
        return elapsed_s

    def _compute_levels(self) -> None:
        """What is a value over its scale, as it is or through a logarithm."""
        levels = self._sorted[:, _LEVELS]
        np.divide(self._row.take(_VALUES, axis=1), self._row.take(_SCALES, axis=1), out=levels)
        logs = self._sorted[:, _LOGS]
        logs += 1.0
        np.log2(logs, out=logs)
        logs /= _FOLDS
        np.copyto(self._sorted[:, _LIMITS], 1.0, where=np.isnan(self._row[:, _LIMIT_COLUMNS]))
        np.minimum(levels, _MOST, out=levels)
        levels *= _GAINS
