"""Resampling of a comparison's blocks: pure functions of arrays.

The unit of a comparison is the *block* (one run of one arm), because all requests of a block share
its luck. Everything is therefore resampled by block: a resample is a row of counts, which say how
often each block was drawn. Every estimate is computed from the same rows, so that a ratio to
``alone`` includes the variation of ``alone``. ``stallward.evaluation.measures.intervals`` turns
the draws of an estimate into an interval.

With a single block, windows inside the block are resampled instead, in runs (moving blocks, Künsch
1989). That misses the variation between blocks, and results say so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Counts = NDArray[np.int64]

RESAMPLES: Final = 2000
RUN_WINDOWS: Final = 5
"""How many windows of a single block are drawn together: stalls last a few seconds."""
_GRID: Final = 8192
"""How many order statistics are kept when the quantiles of very many requests are resampled."""


def block_counts(blocks: int, resamples: int, rng: np.random.Generator) -> Counts:
    """Draw ``resamples`` times ``blocks`` blocks with replacement.

    Returns:
        How often each block was drawn, shape ``(resamples, blocks)``, rows summing to ``blocks``.
    """
    return rng.multinomial(blocks, np.full(blocks, 1.0 / blocks), size=resamples).astype(np.int64)


def moving_block_counts(
    windows: int, run: int, resamples: int, rng: np.random.Generator
) -> Counts:
    """Draw runs of ``run`` neighbouring windows, around the end, until ``windows`` are covered.

    Returns:
        How often each window was drawn, shape ``(resamples, windows)``.
    """
    run = min(run, windows)
    draws = -(-windows // run)
    starts = rng.integers(0, windows, size=(resamples, draws))
    positions = (starts[:, :, None] + np.arange(run)) % windows
    # The last run is cut so that every resample holds as many windows as the block.
    flat = positions.reshape(resamples, -1)[:, :windows]
    counts = np.zeros((resamples, windows), dtype=np.int64)
    np.add.at(counts, (np.arange(resamples)[:, None], flat), 1)
    return counts


def pooled_quantiles(pools: Sequence[Array], quantiles: Sequence[float]) -> Array:
    """Quantiles of all values of all pools together (linear interpolation).

    Returns:
        Shape ``(len(quantiles),)``; NaN when there are no values.
    """
    values = np.concatenate([np.asarray(p, dtype=np.float64) for p in pools])
    if values.size == 0:
        return np.full(len(quantiles), np.nan)
    return np.asarray(np.quantile(values, quantiles), dtype=np.float64)


def bootstrap_quantiles(
    pools: Sequence[Array], quantiles: Sequence[float], counts: Counts
) -> Array:
    """Pooled quantiles of every resample.

    Args:
        pools: The values of each block.
        quantiles: In 0..1.
        counts: Shape ``(resamples, len(pools))``.

    Returns:
        Shape ``(resamples, len(quantiles))``; NaN where a resample is empty.
    """
    values = np.concatenate([np.asarray(p, dtype=np.float64) for p in pools])
    if values.size == 0:
        return np.full((counts.shape[0], len(quantiles)), np.nan)
    owner = np.repeat(np.arange(len(pools)), [len(p) for p in pools])
    order = np.argsort(values, kind="stable")
    values, owner = values[order], owner[order]
    grid = _grid(values.size)
    # below[g, k]: how many values of block k are at or below grid point g
    below = np.empty((grid.size, len(pools)))
    for k in range(len(pools)):
        below[:, k] = np.cumsum(owner == k)[grid]
    return _weighted_quantiles(values[grid], below, counts, quantiles)


def _grid(size: int) -> NDArray[np.int64]:
    """The order statistics to keep: all, or ``_GRID`` of them, half from the top tenth."""
    if size <= _GRID:
        return np.arange(size)
    tail = int(size * 0.9)
    body = np.linspace(0, tail, _GRID // 2, dtype=np.int64)
    top = np.linspace(tail, size - 1, _GRID // 2, dtype=np.int64)
    return np.unique(np.concatenate([body, top]))


def _weighted_quantiles(
    values: Array, below: Array, counts: Counts, quantiles: Sequence[float]
) -> Array:
    """Quantiles, in every resample, of sorted ``values``.

    Args:
        values: Sorted.
        below: How many of each block are at or below each value, ``(len(values), blocks)``.
        counts: How often each block was drawn, ``(resamples, blocks)``.
        quantiles: In 0..1.
    """
    total = counts @ below[-1]
    out = np.empty((counts.shape[0], len(quantiles)))
    last = values.size - 1
    for j, q in enumerate(quantiles):
        rank = q * (total - 1.0)
        lower = np.minimum(_first_above(np.floor(rank), below, counts), last)
        upper = np.minimum(_first_above(np.ceil(rank), below, counts), last)
        part = rank - np.floor(rank)
        out[:, j] = (1.0 - part) * values[lower] + part * values[upper]
    out[total <= 0] = np.nan
    return out


def _first_above(rank: Array, below: Array, counts: Counts) -> NDArray[np.int64]:
    """The first value of every resample with more than ``rank`` at or below it, by bisection.

    Counting what is at or below every value, for every resample, takes seven times as long.
    """
    size = below.shape[0]
    low, high = np.zeros(rank.size, dtype=np.int64), np.full(rank.size, size)
    for _ in range(size.bit_length()):
        middle = np.minimum((low + high) // 2, size - 1)
        short = (counts * below[middle]).sum(axis=1) <= rank
        low, high = np.where(short, middle + 1, low), np.where(short, high, middle)
    return low


def bootstrap_ratio(numerators: Array, denominators: Array, counts: Counts) -> Array:
    """The sum of ``numerators`` over that of ``denominators`` in every resample.

    Returns:
        Shape ``(resamples,)``; NaN where the denominators add up to nothing.
    """
    top = counts @ np.asarray(numerators, dtype=np.float64)
    bottom = counts @ np.asarray(denominators, dtype=np.float64)
    return np.asarray(np.divide(top, bottom, out=np.full(bottom.shape, np.nan), where=bottom > 0))
