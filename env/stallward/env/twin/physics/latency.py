"""Request latency: an open-loop queue, and what a node would report of it.

One request in each sub-step stands for all that arrive in it (its weight), so that a server
with a thousand requests a second costs no more than one with twenty.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stallward.env.twin.physics.pages import clip
from stallward.env.twin.physics.state import HORIZON_TICKS, REPORT_BINS, SUBSTEPS
from stallward.env.twin.simd.elementary import log, power
from stallward.env.twin.simd.jit import model
from stallward.env.twin.simd.values import floor, maximum, minimum, where

Array = NDArray[np.float64]

WINDOW_TICKS: Final = 10
REPORT_LOW: Final = 0.02
REPORT_RATIO: Final = 1.27
"""Reported latencies are binned relative to the target: from 0.02 to about 280 times it."""
POOL_BINS: Final = 256
POOL_LOW_MS: Final = 0.01
POOL_RATIO: Final = 1.07
_POOL_EDGES_MS: Final = POOL_LOW_MS * POOL_RATIO ** np.arange(POOL_BINS + 1)
_LOG_REPORT_RATIO: Final = math.log(REPORT_RATIO)
_LOG_POOL_RATIO: Final = math.log(POOL_RATIO)
_LATEST_TICKS: Final = HORIZON_TICKS - WINDOW_TICKS - 2


@model
def wait_s(queued: float, service_s: float, workers: float, luck: float, load: float) -> float:
    """How long an arriving request waits.

    Args:
        queued: Requests not finished yet.
        service_s: Present mean service time.
        workers: Requests served at once.
        luck: Uniform in [0, 1).
        load: Share of the workers busy in the steady state, for arrivals within one sub-step.
    """
    behind = maximum(queued - (workers - 1.0), 0.0) * service_s / workers
    # Poisson arrivals meet a busy single worker with probability `load`, half-way on average.
    chance = power(clip(load, 0.0, 0.95), workers)
    meets = where(luck < chance, luck / maximum(chance, 1e-9), 0.0)
    return behind + where(queued < 1.0, meets * service_s / workers, 0.0)


@model
def serve(queued: float, arrived: float, service_s: float, capacity_s: float) -> float:
    """Requests (also parts of one) finished in a step with ``capacity_s`` of worker time."""
    return minimum(queued + arrived, capacity_s / maximum(service_s, 1e-9))


@model
def pool_bin(latency_ms: float) -> float:
    """The bin of the pooled histogram."""
    raw = log(maximum(latency_ms, POOL_LOW_MS) / POOL_LOW_MS) / _LOG_POOL_RATIO
    return minimum(floor(raw), POOL_BINS - 1.0)


@model
def report_bin(latency_ms: float, slo_ms: float) -> float:
    """The bin of the reported window."""
    relative = maximum(latency_ms / (slo_ms * REPORT_LOW), 1.0)
    return minimum(floor(log(relative) / _LOG_REPORT_RATIO), REPORT_BINS - 1.0)


@model
def ticks_ahead(latency_ms: float, offset_s: float) -> float:
    """In which tick from now a request is answered that arrives ``offset_s`` into this one."""
    return minimum(floor((latency_ms * 1e-3 + offset_s) * 10.0), float(_LATEST_TICKS))


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


class Windows(NamedTuple):
    """Answers that are to come or were given in the last second, of each node.

    The requests of a tick are remembered in a ring of as many ticks as the horizon, and those
    answered in the same tick hang together: ``first`` is the last one added, ``following`` the
    one before it, -1 ends.
    """

    first: NDArray[np.int16]
    """``(B, HORIZON_TICKS)``."""
    following: NDArray[np.int16]
    """``(B, HORIZON_TICKS * SUBSTEPS)``."""
    bins: NDArray[np.int16]
    """Of the requests' latencies, same shape."""
    weights: NDArray[np.float32]
    """How many each stands for, same shape."""
    pooled: NDArray[np.float32]
    """What all answers took, ``(B, POOL_BINS)``."""

    def copy_from(self, source: Windows, rows: NDArray[np.int64]) -> None:
        """Let the first nodes have the requests of the nodes ``rows`` of ``source``."""
        here = slice(len(rows))
        self.first[here] = source.first[rows]
        self.following[here] = source.following[rows]
        self.bins[here] = source.bins[rows]
        self.weights[here] = source.weights[rows]
        self.pooled[here] = source.pooled[rows]

    def reset(self, nodes: NDArray[np.int64]) -> None:
        """Forget the requests of ``nodes``."""
        self.first[nodes] = -1
        self.pooled[nodes] = 0.0


def make_windows(nodes: int) -> Windows:
    """For ``nodes`` nodes, empty."""
    ring = (nodes, HORIZON_TICKS * SUBSTEPS)
    return Windows(
        first=np.full((nodes, HORIZON_TICKS), -1, dtype=np.int16),
        following=np.full(ring, -1, dtype=np.int16),
        bins=np.zeros(ring, dtype=np.int16),
        weights=np.zeros(ring, dtype=np.float32),
        pooled=np.zeros((nodes, POOL_BINS), dtype=np.float32),
    )
