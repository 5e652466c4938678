"""The requests that are in no sample yet, as a histogram."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.latency_histogram import BUCKETS, LOG_WIDTH, LOWEST_MS, LatencyHistogram

_NOTHING: Final = LatencyHistogram()
_MOST: Final = 2.0**62
"""No more are taken at once: input from outside may claim any number, and this one fits."""
_FEW: Final = 64
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
        if len(latencies_ms) <= _FEW:
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
