"""The window over the requests of the last second, used by all sources."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stallward.agent.latency_histogram import BUCKETS, LOG_WIDTH, LOWEST_MS, LatencyHistogram
from stallward.agent.sample import LatencySample

# ---------- The requests that are in no sample yet, as a histogram

_NOTHING: Final = LatencyHistogram()
_MOST: Final = 2.0**62
"""No more are taken at once: input from outside may claim any number, and this one fits."""
_NEW_REQUESTS_FEW: Final = 64
"""Up to so many points a loop is faster than arrays of all buckets, by far with cold caches."""
_LOG_LOWEST: Final = math.log(LOWEST_MS)
_GOLDEN: Final = (math.sqrt(5.0) - 1.0) / 2.0
"""Multiples of it, modulo 1, are the most even sequence that there is."""


class NewRequests:
    """Gathers requests until a sample takes them.

    A span of a histogram says only that its requests are between two bounds. They count as being
    at one place between them, another one each time, so that over a block they are evenly spread.
    A weight may stand for a part of a request: only whole requests are taken, and what is left
    over is added to the next ones.
    """

    def __init__(self) -> None:
        self._points: dict[int, int] = {}
        """Requests by the numbers of their buckets, where there were few at once."""
        self._counts = np.zeros(BUCKETS)
        """All others."""
        self._any = False
        """Whether there are any others."""
        self._left_over = 0.0
        self._place = 0.0

    def add_points(self, latencies_ms: Sequence[float]) -> None:
        """Add requests whose latencies are known exactly."""
        if len(latencies_ms) <= _NEW_REQUESTS_FEW:
            for latency_ms in latencies_ms:
                bucket = _bucket(latency_ms)
                self._points[bucket] = self._points.get(bucket, 0) + 1
            return
        self._add(np.asarray(latencies_ms, dtype=np.float64), None)

    def add_spans(self, spans: NDArray[np.float64]) -> None:
        """Add requests whose latencies are known only by bounds.

        Args:
            spans: Shape (n, 3): lowest and highest latency in ms, and number of requests.
        """
        self._place = (self._place + _GOLDEN) % 1.0
        low, high, count = spans.T
        self._add(low + (high - low) * self._place, count)

    def _add(self, latencies_ms: NDArray[np.float64], weights: NDArray[np.float64] | None) -> None:
        logs = np.log(np.maximum(latencies_ms, LOWEST_MS)) - _LOG_LOWEST
        buckets = np.minimum(np.ceil(logs / LOG_WIDTH), BUCKETS - 1).astype(np.int64)
        self._counts += np.bincount(buckets, weights, minlength=BUCKETS)
        self._any = True

    def take(self) -> LatencyHistogram:
        """The requests that were added since the last call."""
        points, self._points = self._points, {}
        if not self._any:
            return LatencyHistogram.of(points) if points else _NOTHING
        for bucket, count in points.items():
            self._counts[bucket] += count
        reached = self._counts.cumsum()
        reached += self._left_over
        self._left_over = float(reached[-1]) % 1.0
        counts = np.minimum(reached, _MOST).astype(np.int64)
        counts[1:] -= counts[:-1].copy()
        self._counts[:] = 0.0
        self._any = False
        buckets = counts.nonzero()[0]
        return LatencyHistogram(
            buckets=tuple(buckets.tolist()), counts=tuple(counts[buckets].tolist())
        )


def _bucket(latency_ms: float) -> int:
    """The number of the bucket of one request."""
    place = (math.log(max(latency_ms, LOWEST_MS)) - _LOG_LOWEST) / LOG_WIDTH
    return math.ceil(min(place, BUCKETS - 1))


WINDOW_S: Final = 1.0
MOST_REQUESTS: Final = 2.0**53
"""No more requests are counted, at once or in all: up to here a float counts one by one."""
_MOST_TOTAL_MS: Final = MOST_REQUESTS * 1e9
_QUANTILE: Final = 0.95
_ROUNDING: Final = 1e-9
"""The share of the requests by which rounding may change a rank."""


_FEW: Final = 256
"""Up to this many points a plain sort is faster than making arrays, by far with cold caches."""


class _Batch(NamedTuple):
    seen_s: float
    points: Sequence[float]
    """Exact latencies, ms."""
    spans: NDArray[np.float64] | None
    """Shape (n, 3): lowest and highest latency (ms) and number of requests, where only these are
    known."""
    requests: float
    """The number of requests."""
    total_ms: float
    """The sum of the latencies."""


class LatencyWindow:
    """Sums up the requests seen in the last ``window_s`` seconds.

    A request with an exact latency is a point. A histogram gives only the number of requests
    between two bounds. Within such a span they count as evenly spread, so the error of a quantile
    is less than the span's width, and the maximum is the upper bound of the highest span with any.

    The windows of consecutive samples overlap. So each sample also has a histogram of the requests
    that were seen since the last one.

    Args:
        window_s: The window's length.
    """

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self.window_s = window_s
        self._batches: deque[_Batch] = deque()
        self._new = NewRequests()
        self._completed_total = 0.0
        self._last_s: float | None = None

    def add_points(self, seen_s: float, latencies_ms: Sequence[float]) -> None:
        """Add requests whose latencies are known exactly.

        Args:
            seen_s: When they were seen, by CLOCK_MONOTONIC; never less than in the last call.
            latencies_ms: One latency for each request.
        """
        if len(latencies_ms):
            count = float(len(latencies_ms))
            self._new.add_points(latencies_ms)
            self._add(_Batch(seen_s, tuple(latencies_ms), None, count, math.fsum(latencies_ms)))

    def add_spans(self, seen_s: float, spans: NDArray[np.float64], total_ms: float) -> None:
        """Add requests whose latencies are known only by bounds.

        Args:
            seen_s: When they were seen, by CLOCK_MONOTONIC; never less than in the last call.
            spans: Shape (n, 3): lowest and highest latency in ms, and number of requests.
            total_ms: The sum of their latencies.
        """
        if len(spans):
            if not spans[:, 2].sum() <= MOST_REQUESTS:
                share = MOST_REQUESTS / len(spans)
                spans = np.column_stack((spans[:, :2], np.minimum(spans[:, 2], share)))
            total_ms = min(total_ms, _MOST_TOTAL_MS)
            self._new.add_spans(spans)
            self._add(_Batch(seen_s, (), spans, float(spans[:, 2].sum()), total_ms))

    def _add(self, batch: _Batch) -> None:
        self._batches.append(batch)
        self._completed_total = min(self._completed_total + batch.requests, MOST_REQUESTS)
        self._last_s = batch.seen_s

    def has_requests(self, now_s: float) -> bool:
        """Return whether any are in the window at ``now_s`` (CLOCK_MONOTONIC)."""
        while self._batches and self._batches[0].seen_s <= now_s - self.window_s:
            self._batches.popleft()
        return bool(self._batches)

    def sample(self, now_s: float) -> LatencySample:
        """Return the latencies in the window at ``now_s`` (CLOCK_MONOTONIC).

        It takes the new requests: the sample must reach whoever counts them.
        """
        any_in_window = self.has_requests(now_s)
        age_s = None if self._last_s is None else max(now_s - self._last_s, 0.0)
        total = round(self._completed_total)
        if not any_in_window:
            return LatencySample(
                window_s=self.window_s,
                completed_total=total,
                last_completion_age_s=age_s,
                new_requests=self._new.take(),
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
            new_requests=self._new.take(),
        )

    def _upper(self, count: float) -> tuple[float, float]:
        """Return the quantile and the maximum of the ``count`` requests in the window, ms."""
        if count <= _FEW and all(batch.spans is None for batch in self._batches):
            points = sorted([point for batch in self._batches for point in batch.points])
            rank = math.ceil(_QUANTILE * count * (1.0 - _ROUNDING))
            return points[max(rank, 1) - 1], points[-1]
        spans = _merged(np.concatenate([_spans(batch) for batch in self._batches]))
        return _quantile(spans, _QUANTILE), float(spans[-1, 1])


def _spans(batch: _Batch) -> NDArray[np.float64]:
    """Return the requests of a batch as spans; a point is a span without width."""
    if batch.spans is not None:
        return batch.spans
    points = np.asarray(batch.points, dtype=np.float64)
    return np.stack((points, points, np.ones_like(points)), axis=1)


def _merged(spans: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sort spans by their upper bounds, and merge equal ones.

    The same bucket of two scrapes must be one span: interpolating in each of them would be wrong.
    """
    if (spans[:, 0] == spans[:, 1]).all():
        return spans[spans[:, 1].argsort()]
    bounds, index = np.unique(spans[:, 1] + 1j * spans[:, 0], return_inverse=True)
    counts = np.bincount(index, weights=spans[:, 2])
    return np.stack((bounds.imag, bounds.real, counts), axis=1)


def _quantile(spans: NDArray[np.float64], q: float) -> float:
    """Return the ``q`` quantile of sorted spans: nearest rank, interpolated within a span."""
    reached = np.cumsum(spans[:, 2])
    rank = q * float(reached[-1])
    index = int(np.searchsorted(reached, rank * (1.0 - _ROUNDING)))
    low, high, count = spans[index].tolist()
    share = (rank - (float(reached[index]) - count)) / count
    return float(low + (high - low) * min(max(share, 0.0), 1.0))
