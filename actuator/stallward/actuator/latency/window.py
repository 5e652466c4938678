"""The last second of requests, whatever source they came from."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stallward.agent.sample import LatencySample

WINDOW_S: Final = 1.0
_QUANTILE: Final = 0.95
_ROUNDING: Final = 1e-9
"""Share of the requests by which a rank may miss because of rounding."""


_FEW: Final = 256
"""Fewer points are sorted faster than arrays are made, by far while caches are cold."""


class _Batch(NamedTuple):
    seen_s: float
    points: Sequence[float]
    """Known latencies, ms."""
    spans: NDArray[np.float64] | None
    """Shape (n, 3): lowest and highest latency (ms) of so many requests, where that is all that
    is known of them."""
    requests: float
    """How many."""
    total_ms: float
    """Sum of the latencies."""


class LatencyWindow:
    """Sums up the requests seen in the last ``window_s`` seconds.

    A request with a known latency is a point. A histogram only says how many lay between two
    bounds: within such a span they count as evenly spread, so a quantile is off by less than
    the span's width, and the maximum is the upper bound of the highest span that holds any.

    Args:
        window_s: Its length.
    """

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self.window_s = window_s
        self._batches: deque[_Batch] = deque()
        self._completed_total = 0.0
        self._last_s: float | None = None

    def add_points(self, seen_s: float, latencies_ms: Sequence[float]) -> None:
        """Take in requests whose latencies are known.

        Args:
            seen_s: CLOCK_MONOTONIC when they were seen; never less than in the last call.
            latencies_ms: One for each request.
        """
        if len(latencies_ms):
            count = float(len(latencies_ms))
            self._add(_Batch(seen_s, tuple(latencies_ms), None, count, math.fsum(latencies_ms)))

    def add_spans(self, seen_s: float, spans: NDArray[np.float64], total_ms: float) -> None:
        """Take in requests of which only bounds are known.

        Args:
            seen_s: CLOCK_MONOTONIC when they were seen; never less than in the last call.
            spans: Shape (n, 3): lowest, highest latency in ms, and how many.
            total_ms: Sum of their latencies.
        """
        if len(spans):
            self._add(_Batch(seen_s, (), spans, float(spans[:, 2].sum()), total_ms))

    def _add(self, batch: _Batch) -> None:
        self._batches.append(batch)
        self._completed_total += batch.requests
        self._last_s = batch.seen_s

    def sample(self, now_s: float) -> LatencySample:
        """What the window holds at ``now_s``, CLOCK_MONOTONIC."""
        while self._batches and self._batches[0].seen_s <= now_s - self.window_s:
            self._batches.popleft()
        age_s = None if self._last_s is None else max(now_s - self._last_s, 0.0)
        total = round(self._completed_total)
        if not self._batches:
            return LatencySample(
                window_s=self.window_s, completed_total=total, last_completion_age_s=age_s
            )
        count = math.fsum(batch.requests for batch in self._batches)
        p95_ms, max_ms = self._upper(count)
        return LatencySample(
            window_s=self.window_s,
            completed=max(round(count), 1),
            completed_total=total,
            mean_ms=math.fsum(batch.total_ms for batch in self._batches) / count,
            p95_ms=p95_ms,
            max_ms=max_ms,
            last_completion_age_s=age_s,
        )

    def _upper(self, count: float) -> tuple[float, float]:
        """The quantile and the maximum of the ``count`` requests in the window, ms."""
        if count <= _FEW and all(batch.spans is None for batch in self._batches):
            points = sorted([point for batch in self._batches for point in batch.points])
            rank = math.ceil(_QUANTILE * count * (1.0 - _ROUNDING))
            return points[max(rank, 1) - 1], points[-1]
        spans = _merged(np.concatenate([_spans(batch) for batch in self._batches]))
        return _quantile(spans, _QUANTILE), float(spans[-1, 1])


def _spans(batch: _Batch) -> NDArray[np.float64]:
    """The requests of a batch as spans; a point is one without width."""
    if batch.spans is not None:
        return batch.spans
    points = np.asarray(batch.points, dtype=np.float64)
    return np.stack((points, points, np.ones_like(points)), axis=1)


def _merged(spans: NDArray[np.float64]) -> NDArray[np.float64]:
    """The spans in ascending order of their upper bounds, equal ones as one.

    The same bucket of two scrapes must be one span: interpolating in either would be wrong.
    """
    if (spans[:, 0] == spans[:, 1]).all():
        return spans[spans[:, 1].argsort()]
    bounds, index = np.unique(spans[:, 1] + 1j * spans[:, 0], return_inverse=True)
    counts = np.bincount(index, weights=spans[:, 2])
    return np.stack((bounds.imag, bounds.real, counts), axis=1)


def _quantile(spans: NDArray[np.float64], q: float) -> float:
    """The ``q`` quantile of ascending spans: nearest rank, interpolated where a span is wide."""
    reached = np.cumsum(spans[:, 2])
    rank = q * float(reached[-1])
    index = int(np.searchsorted(reached, rank * (1.0 - _ROUNDING)))
    low, high, count = spans[index].tolist()
    share = (rank - (float(reached[index]) - count)) / count
    return float(low + (high - low) * min(max(share, 0.0), 1.0))
