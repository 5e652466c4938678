"""The latency of requests: an open-loop queue, and the figures that a node would report.

One request in each sub-step stands for all that arrive in it; their number is its weight. So a
server with a thousand requests per second costs no more to simulate than one with twenty.
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
def wait_s(queued: float, service_s: float, workers: float, number: float, load: float) -> float:
    """Return how long an arriving request waits.

    Args:
        queued: Requests that are not finished yet.
        service_s: The mean service time now.
        workers: How many requests are served at once.
        number: A uniform random number in [0, 1).
        load: The share of workers that is busy in the steady state, for arrivals in one sub-step.
    """
    behind = maximum(queued - (workers - 1.0), 0.0) * service_s / workers
    # A Poisson arrival finds a single worker busy with probability `load`, and half-way through a
    # request on average.
    chance = power(clip(load, 0.0, 0.95), workers)
    meets = where(number < chance, number / maximum(chance, 1e-9), 0.0)
    return behind + where(queued < 1.0, meets * service_s / workers, 0.0)


@model
def cpu_wait_s(share: float, most_s: float, number: float) -> float:
    """Return how long a request waits until it gets a CPU.

    A program that runs on the CPU is interrupted when it has used up its slice, of which a request
    finds any part left.

    Args:
        share: The share of requests that wait at all.
        most_s: The longest wait.
        number: A uniform random number in [0, 1), of which the upper end decides.
    """
    left = 1.0 - number
    return where(left < share, left / maximum(share, 1e-9), 0.0) * most_s


@model
def serve(queued: float, arrived: float, service_s: float, capacity_s: float) -> float:
    """Return the requests, or parts of one, that ``capacity_s`` of worker time finishes."""
    return minimum(queued + arrived, capacity_s / maximum(service_s, 1e-9))


@model
def pool_bin(latency_ms: float) -> float:
    """Return the bin of a latency in the pooled histogram."""
    raw = log(maximum(latency_ms, POOL_LOW_MS) / POOL_LOW_MS) / _LOG_POOL_RATIO
    return minimum(floor(raw), POOL_BINS - 1.0)


@model
def report_bin(latency_ms: float, slo_ms: float) -> float:
    """Return the bin of a latency in the reported window."""
    relative = maximum(latency_ms / (slo_ms * REPORT_LOW), 1.0)
    return minimum(floor(log(relative) / _LOG_REPORT_RATIO), REPORT_BINS - 1.0)


@model
def ticks_ahead(latency_ms: float, offset_s: float) -> float:
    """Return in how many ticks a request is answered that arrives ``offset_s`` into this one."""
    return minimum(floor((latency_ms * 1e-3 + offset_s) * 10.0), float(_LATEST_TICKS))


def pooled_quantiles(histogram: Array, quantiles: tuple[float, ...]) -> Array:
    """Return quantiles in ms of pooled histograms.

    Args:
        histogram: The weights of the bins, ``(POOL_BINS, B)``.
        quantiles: The quantiles, between 0 and 1.

    Returns:
        The latencies, ``(len(quantiles), B)``; NaN where the histogram is empty.
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


def pooled_mean_ms(histogram: Array) -> float:
    """Return the mean of one pooled histogram, ``(POOL_BINS,)``; NaN where it is empty."""
    middles_ms = POOL_LOW_MS * POOL_RATIO ** (np.arange(POOL_BINS) + 0.5)
    total = float(histogram.sum())
    return float(histogram @ middles_ms) / total if total > 0.0 else math.nan


class Windows(NamedTuple):
    """The requests of each node that will be answered, or were answered in the last second.

    Requests are in a ring of as many ticks as the horizon. Those that are answered in the same
    tick form a linked list: ``first`` is the index of the one added last, ``following`` that of
    the one added before, -1 the end.
    """

    first: NDArray[np.int16]
    """The head of the list of each tick, ``(B, HORIZON_TICKS)``."""
    following: NDArray[np.int16]
    """The next request in the list of each request, ``(B, HORIZON_TICKS * SUBSTEPS)``."""
    bins: NDArray[np.int16]
    """The bin of each request's latency, same shape."""
    weights: NDArray[np.float32]
    """The weight of each request, same shape."""
    pooled: NDArray[np.float32]
    """The histogram of all latencies, ``(B, POOL_BINS)``."""

    def behind(self, first: int) -> Windows:
        """The windows from node ``first`` on; the same memory."""
        return Windows(
            first=self.first[first:],
            following=self.following[first:],
            bins=self.bins[first:],
            weights=self.weights[first:],
            pooled=self.pooled[first:],
        )

    def copy_from(self, source: Windows, rows: NDArray[np.int64]) -> None:
        """Copy the requests of the nodes ``rows`` of ``source`` to the first nodes."""
        here = slice(len(rows))
        self.first[here] = source.first[rows]
        self.following[here] = source.following[rows]
        self.bins[here] = source.bins[rows]
        self.weights[here] = source.weights[rows]
        self.pooled[here] = source.pooled[rows]

    def reset(self, nodes: NDArray[np.int64]) -> None:
        """Remove the requests of ``nodes``."""
        self.first[nodes] = -1
        self.pooled[nodes] = 0.0


def make_windows(nodes: int) -> Windows:
    """Make empty windows for ``nodes`` nodes."""
    ring = (nodes, HORIZON_TICKS * SUBSTEPS)
    return Windows(
        first=np.full((nodes, HORIZON_TICKS), -1, dtype=np.int16),
        following=np.full(ring, -1, dtype=np.int16),
        bins=np.zeros(ring, dtype=np.int16),
        weights=np.zeros(ring, dtype=np.float32),
        pooled=np.zeros((nodes, POOL_BINS), dtype=np.float32),
    )
