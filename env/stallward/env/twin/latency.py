"""Request latency: an open-loop queue, and what a node would report of it.

One request in each sub-step stands for all that arrive in it (its weight), so that a server
with a thousand requests a second costs no more than one with twenty.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

HORIZON_TICKS: Final = 64
"""How far ahead completions are kept for the reported window; later ones count as the last."""
WINDOW_TICKS: Final = 10
REPORT_BINS: Final = 40
_REPORT_LOW: Final = 0.02
_REPORT_RATIO: Final = 1.27
"""Reported latencies are binned relative to the target: from 0.02 to about 280 times it."""
POOL_BINS: Final = 256
POOL_LOW_MS: Final = 0.01
POOL_RATIO: Final = 1.07
_POOL_EDGES_MS: Final = POOL_LOW_MS * POOL_RATIO ** np.arange(POOL_BINS + 1)


def wait_s(queued: Array, service_s: Array, workers: Array, luck: Array, load: Array) -> Array:
    """How long an arriving request waits.

    Args:
        queued: Requests not finished yet.
        service_s: Present mean service time.
        workers: Requests served at once.
        luck: Uniform in [0, 1).
        load: Share of the workers busy in the steady state, for arrivals within one sub-step.
    """
    behind = np.maximum(queued - (workers - 1.0), 0.0) * service_s / workers
    # Poisson arrivals meet a busy single worker with probability `load`, half-way on average.
    chance = np.clip(load, 0.0, 0.95) ** workers
    meets = np.where(luck < chance, luck / np.maximum(chance, 1e-9), 0.0)
    return np.asarray(behind + np.where(queued < 1.0, meets * service_s / workers, 0.0))


def serve(queued: Array, arrived: Array, service_s: Array, capacity_s: Array) -> Array:
    """Requests (also parts of one) finished in a step with ``capacity_s`` of worker time."""
    return np.minimum(queued + arrived, capacity_s / np.maximum(service_s, 1e-9))


def pool_bin(latency_ms: Array) -> NDArray[np.int64]:
    """The bin of the pooled histogram."""
    raw = np.log(np.maximum(latency_ms, POOL_LOW_MS) / POOL_LOW_MS) / np.log(POOL_RATIO)
    return np.asarray(np.minimum(raw.astype(np.int64), POOL_BINS - 1))


def pooled_quantiles(histogram: Array, quantiles: tuple[float, ...]) -> Array:
    """Quantiles in ms of pooled histograms.

    Args:
        histogram: ``(POOL_BINS, B)`` weights.
        quantiles: Between 0 and 1.

    Returns:
        Shape ``(len(quantiles), B)``; NaN where nothing was counted.
    """
    cumulative = np.cumsum(histogram, axis=0)
    total = cumulative[-1]
    out = np.full((len(quantiles), histogram.shape[1]), np.nan)
    for k, q in enumerate(quantiles):
        target = q * total
        index = np.minimum((cumulative < target).sum(axis=0), POOL_BINS - 1)
        columns = np.arange(histogram.shape[1])
        inside = histogram[index, columns]
        before = cumulative[index, columns] - inside
        share = np.clip((target - before) / np.maximum(inside, 1e-12), 0.0, 1.0)
        value = _POOL_EDGES_MS[index] * POOL_RATIO**share
        out[k] = np.where(total > 0.0, value, np.nan)
    return out


class LatencyWindow:
    """What the node's latency source would report: completions of the last second.

    Args:
        batch: Nodes, ``B``.
    """

    def __init__(self, batch: int) -> None:
        self._columns = np.arange(batch)
        self._bins = np.zeros((HORIZON_TICKS, REPORT_BINS, batch))
        self._sums_ms = np.zeros((HORIZON_TICKS, batch))
        self._max_ms = np.zeros((HORIZON_TICKS, batch))
        self._window = np.zeros((REPORT_BINS, batch))
        self._tick = 0
        self._last_s = np.full(batch, np.nan)

    def reset(self, rows: NDArray[np.bool_]) -> None:
        """Forget the requests of the nodes in ``rows``."""
        self._bins[:, :, rows] = 0.0
        self._sums_ms[:, rows] = 0.0
        self._max_ms[:, rows] = 0.0
        self._window[:, rows] = 0.0
        self._last_s[rows] = np.nan

    def add(self, latency_ms: Array, weight: Array, slo_ms: Array, offset_s: float) -> None:
        """Requests that arrive ``offset_s`` into the present tick."""
        ahead = ((latency_ms * 1e-3 + offset_s) * 10.0).astype(np.int64)
        slot = (self._tick + np.minimum(ahead, HORIZON_TICKS - WINDOW_TICKS - 2)) % HORIZON_TICKS
        relative = np.maximum(latency_ms / (slo_ms * _REPORT_LOW), 1.0)
        row = np.minimum(
            (np.log(relative) / np.log(_REPORT_RATIO)).astype(np.int64), REPORT_BINS - 1
        )
        # Each node has its own column, so no index repeats and += is safe.
        self._bins[slot, row, self._columns] += weight
        self._sums_ms[slot, self._columns] += weight * latency_ms
        seen = np.where(weight > 0.0, latency_ms, 0.0)
        self._max_ms[slot, self._columns] = np.maximum(self._max_ms[slot, self._columns], seen)

    def report(self, time_s: Array, slo_ms: Array) -> tuple[Array, Array, Array, Array, Array]:
        """Close the tick: completed, mean, p95, max (ms; NaN when none) and age (s)."""
        now = self._tick % HORIZON_TICKS
        old = (self._tick - WINDOW_TICKS) % HORIZON_TICKS
        self._window += self._bins[now] - self._bins[old]
        np.maximum(self._window, 0.0, out=self._window)
        self._bins[old] = 0.0
        self._sums_ms[old] = 0.0
        self._max_ms[old] = 0.0
        inside = (self._tick - np.arange(WINDOW_TICKS)) % HORIZON_TICKS
        cumulative = np.cumsum(self._window, axis=0)
        completed = cumulative[-1]
        known = completed > 0.5
        mean = self._sums_ms[inside].sum(axis=0) / np.maximum(completed, 1e-9)
        worst = self._max_ms[inside].max(axis=0)
        row = np.minimum((cumulative < 0.95 * completed).sum(axis=0), REPORT_BINS - 1)
        p95 = np.minimum(slo_ms * _REPORT_LOW * _REPORT_RATIO ** (row + 0.5), worst)
        arrived = self._bins[now].any(axis=0)
        self._last_s = np.where(arrived, time_s, self._last_s)
        self._tick += 1
        nan = np.nan
        return (
            np.where(known, np.rint(completed), 0.0),
            np.where(known, mean, nan),
            np.where(known, p95, nan),
            np.where(known, worst, nan),
            time_s - self._last_s,
        )
