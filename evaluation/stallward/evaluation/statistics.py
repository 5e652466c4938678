"""The statistics of a comparison: pure functions of arrays.

The unit of a comparison is the *block* (one switch-on of one arm), because requests inside a
block share its luck. Everything is therefore resampled by block: a resample is a row of counts,
saying how often each block was drawn, and every estimate is computed from the same rows, so that
a ratio to ``alone`` carries the variation of ``alone`` too.

Percentile intervals from a handful of blocks are too narrow: where blocks differ by 20 %, those
of a p95 from 3 blocks cover the truth 71 times in 100. Intervals here are the estimate plus or
minus ``t(n - 1) * sqrt(n / (n - 1))`` bootstrap standard errors (the factor undoes the shrinking
of a resampled spread; Hesterberg, The American Statistician 69(4), 2015), taken on the logarithm
where a quantity varies by factors; the same simulation then covers 93 to 97 times in 100.
With a single block there is nothing to resample between blocks: windows inside the block are,
in runs (moving blocks, Künsch 1989), which misses the variation between blocks; results say so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Counts = NDArray[np.int64]

RESAMPLES: Final = 2000
_NORMAL_975: Final = 1.959964
# Student's t at 0.975 for 1..10 degrees of freedom; beyond, an expansion is good to 1e-3.
_T_975: Final = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281)
_GRID: Final = 8192
"""Order statistics kept per pool when bootstrapping quantiles of very many requests."""
MIN_WINDOW_REQUESTS: Final = 20


class Scale(StrEnum):
    """The scale on which an interval is symmetric about its estimate."""

    LOG = "log"
    """Positive quantities that vary by factors: latencies, ratios."""
    SHARE = "share"
    """Numbers in 0..1; intervals end there."""
    LINEAR = "linear"


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An estimate and its 95 % interval; ``None`` where nothing can be said."""

    value: float | None
    low: float | None
    high: float | None

    def as_json(self) -> dict[str, float | None]:
        """The form used in ``result.json``."""
        return {"value": self.value, "low": self.low, "high": self.high}


UNKNOWN: Final = Interval(value=None, low=None, high=None)


# ------------------------------------------------------------------------------ resampling


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


# ------------------------------------------------------------------------------- estimates


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
    # below[k, g]: how many values of block k are at or below grid point g
    below = np.zeros((len(pools), grid.size))
    for k in range(len(pools)):
        below[k] = np.cumsum(owner == k)[grid]
    return np.concatenate(
        [
            _weighted_quantiles(values[grid], part @ below, quantiles)
            for part in np.array_split(counts, max(1, counts.shape[0] * grid.size // 4_000_000))
        ]
    )


def _grid(size: int) -> NDArray[np.int64]:
    """Which order statistics to keep: all, or half of them in the top tenth."""
    if size <= _GRID:
        return np.arange(size)
    tail = int(size * 0.9)
    body = np.linspace(0, tail, _GRID // 2, dtype=np.int64)
    top = np.linspace(tail, size - 1, _GRID // 2, dtype=np.int64)
    return np.unique(np.concatenate([body, top]))


def _weighted_quantiles(values: Array, cumulative: Array, quantiles: Sequence[float]) -> Array:
    """Quantiles of sorted ``values`` whose cumulative counts are the rows of ``cumulative``."""
    total = cumulative[:, -1]
    out = np.empty((cumulative.shape[0], len(quantiles)))
    last = values.size - 1
    for j, q in enumerate(quantiles):
        rank = q * (total - 1.0)
        lower = np.minimum((cumulative <= np.floor(rank)[:, None]).sum(axis=1), last)
        upper = np.minimum((cumulative <= np.ceil(rank)[:, None]).sum(axis=1), last)
        part = rank - np.floor(rank)
        out[:, j] = (1.0 - part) * values[lower] + part * values[upper]
    out[total <= 0] = np.nan
    return out


def bootstrap_ratio(numerators: Array, denominators: Array, counts: Counts) -> Array:
    """Sum of ``numerators`` over sum of ``denominators`` in every resample, shape ``(B,)``."""
    below = counts @ np.asarray(denominators, dtype=np.float64)
    above = counts @ np.asarray(numerators, dtype=np.float64)
    return np.asarray(np.divide(above, below, out=np.full(below.shape, np.nan), where=below > 0))


# ------------------------------------------------------------------------------- intervals


def student_975(degrees: int) -> float:
    """The 0.975 quantile of Student's t."""
    if degrees < 1:
        return float("inf")
    if degrees <= len(_T_975):
        return _T_975[degrees - 1]
    z = _NORMAL_975
    first = (z**3 + z) / (4.0 * degrees)
    second = (5 * z**5 + 16 * z**3 + 3 * z) / (96.0 * degrees**2)
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384.0 * degrees**3)
    return z + first + second + third


def half_width(blocks: int) -> float:
    """How many bootstrap standard errors an interval from ``blocks`` blocks reaches."""
    return student_975(blocks - 1) * float(np.sqrt(blocks / (blocks - 1)))


def interval(value: float, draws: Array, *, blocks: int, scale: Scale) -> Interval:
    """The 95 % interval of ``value`` from bootstrap draws of it.

    Args:
        value: The estimate from all blocks.
        draws: Shape ``(resamples,)``.
        blocks: How many independent units were resampled.
        scale: The scale on which the interval is symmetric.

    Returns:
        ``value`` alone (no interval) when fewer than 2 units were resampled; nothing at all when
        ``value`` is not finite.
    """
    if not np.isfinite(value):
        return UNKNOWN
    draws = draws[np.isfinite(draws)]
    if blocks < 2 or draws.size == 0:
        return Interval(value=float(value), low=None, high=None)
    reach = half_width(blocks)
    if scale is Scale.LOG and value > 0 and draws.min() > 0:
        factor = float(np.exp(min(reach * np.log(draws).std(), 50.0)))
        return Interval(value=float(value), low=value / factor, high=value * factor)
    low, high = (float(value + sign * reach * draws.std()) for sign in (-1, 1))
    if scale is Scale.SHARE:
        low, high = max(low, 0.0), min(high, 1.0)
    elif scale is Scale.LOG:  # some draws are 0, so there is no logarithm; nothing is negative
        low = max(low, 0.0)
    return Interval(value=float(value), low=low, high=high)


def impact_interval(ratio: float, draws: Array, *, blocks: int) -> Interval:
    """The interval of an impact ``ratio - 1``; it is symmetric on the ratio's logarithm."""
    found = interval(ratio, draws, blocks=blocks, scale=Scale.LOG)
    if found.value is None:
        return UNKNOWN
    return Interval(
        value=found.value - 1.0,
        low=None if found.low is None else found.low - 1.0,
        high=None if found.high is None else found.high - 1.0,
    )


# ----------------------------------------------------------------------------------- SLO


def slo_windows(scheduled_s: Array, start_s: float, end_s: float) -> NDArray[np.int64]:
    """Cut a block into windows of whole seconds that hold at least 20 scheduled requests.

    A window closes at the first whole second at which it holds enough; what is left at the end
    joins the last window.

    Args:
        scheduled_s: Scheduled times of the requests, any order.
        start_s: Start of the measured part of the block.
        end_s: Its end.

    Returns:
        The window of each request, shape ``(requests,)``.
    """
    seconds = np.floor(scheduled_s - start_s).astype(np.int64)
    count = np.bincount(seconds, minlength=max(int(np.ceil(end_s - start_s)), 1))
    window_of = np.empty(count.size, dtype=np.int64)
    window, held, opened = 0, 0, 0
    for second, requests in enumerate(count):
        window_of[second] = window
        held += int(requests)
        if held >= MIN_WINDOW_REQUESTS:
            window, held, opened = window + 1, 0, second + 1
    if opened < count.size and window > 0:
        window_of[opened:] = window - 1
    return window_of[seconds]


def slo_windows_met(
    scheduled_s: Array,
    latency_ms: Array,
    ok: NDArray[np.bool_],
    *,
    start_s: float,
    end_s: float,
    slo_ms: float,
) -> NDArray[np.bool_]:
    """Which windows of a block met the SLO.

    A window meets it when 95 % of the requests scheduled in it ended well within ``slo_ms``
    (the empirical p95); requests that failed or never ended are violations.

    Returns:
        One entry per window; empty when no request was scheduled.
    """
    if scheduled_s.size == 0:
        return np.zeros(0, dtype=bool)
    window = slo_windows(scheduled_s, start_s, end_s)
    good = np.bincount(window, weights=(ok & (latency_ms <= slo_ms)).astype(np.float64))
    total = np.bincount(window)
    present = total > 0
    return np.asarray(good[present] >= 0.95 * total[present] - 1e-9)


def share_interval(successes: int, trials: int, draws: Array, *, units: int) -> Interval:
    """The interval of a share; where nothing varied, the rule of three over its trials.

    Args:
        successes: Trials that succeeded.
        trials: All trials; 0 gives an unknown share.
        draws: Bootstrap draws of the share.
        units: How many independent units were resampled.
    """
    if trials == 0:
        return UNKNOWN
    found = interval(successes / trials, draws, blocks=units, scale=Scale.SHARE)
    if found.low is None or found.high is None or found.low < found.high:
        return found
    margin = min(3.0 / trials, 1.0)  # 95 % bound on what never happened in that many trials
    if successes == trials:
        return Interval(value=1.0, low=1.0 - margin, high=1.0)
    return Interval(value=found.value, low=found.low, high=min(found.high + margin, 1.0))
