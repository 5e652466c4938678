"""95 % intervals of an estimate from its bootstrap draws. Pure.

Percentile intervals from a few blocks are too narrow: where blocks differ by 20 %, the intervals
of a p95 from 3 blocks cover the true value 71 times in 100. Intervals here are the estimate plus
or minus ``t(n - 1) * sqrt(n / (n - 1))`` bootstrap standard errors (the factor corrects that a
resampled spread is too small; Hesterberg, The American Statistician 69(4), 2015), taken on the
logarithm where a quantity varies by factors; the same simulation then covers 93 to 97 times in
100.
"""

from __future__ import annotations

import math
from enum import StrEnum
from functools import cache
from typing import Final

import numpy as np

from stallward.evaluation.measures.bootstrap import Array
from stallward.evaluation.results.interval import UNKNOWN, Interval

_LEFT_OUT: Final = 0.025
"""The share of draws that an interval leaves out on each side."""


class Scale(StrEnum):
    """The scale on which an interval is symmetric about its estimate."""

    LOG = "log"
    """Positive quantities that vary by factors: latencies, ratios."""
    SHARE = "share"
    """Numbers in 0..1; intervals end there."""
    LINEAR = "linear"


@cache
def student_975(degrees: int) -> float:
    """The 0.975 quantile of Student's t.

    Newton steps from below the quantile, where the distribution is concave, never go beyond it.
    Scipy has it, too, and is not on nodes, where reports of experiments are made.
    """
    if degrees < 1:
        return float("inf")
    half = degrees / 2.0
    scale = 2.0 * math.exp(math.lgamma(half + 0.5) - math.lgamma(half))
    scale /= math.sqrt(math.pi * degrees)
    t = step = 1.95
    while step > 1e-14 * t:
        density = scale * (1.0 + t * t / degrees) ** (-half - 0.5)
        step = (1.0 - 2.0 * _LEFT_OUT - _student_within(t, degrees)) / density
        t += step
    return t


def _student_within(t: float, degrees: int) -> float:
    """The chance that Student's t is between ``-t`` and ``t``, by its finite series."""
    odd = degrees % 2
    cosine_2 = degrees / (degrees + t * t)
    term, total = 1.0, 0.0
    for k in range(1, (degrees - odd) // 2 + 1):
        total += term
        term *= cosine_2 * (2 * k - 1 + odd) / (2 * k + odd)
    sine = t / math.sqrt(degrees + t * t)
    if not odd:
        return sine * total
    return 2.0 / math.pi * (math.asin(sine) + sine * math.sqrt(cosine_2) * total)


def half_width(blocks: int) -> float:
    """Half the width of an interval from ``blocks`` blocks, in bootstrap standard errors."""
    return student_975(blocks - 1) * float(np.sqrt(blocks / (blocks - 1)))


def interval(value: float, draws: Array, *, blocks: int, scale: Scale) -> Interval:
    """The 95 % interval of ``value`` from bootstrap draws of it.

    Args:
        value: The estimate from all blocks.
        draws: Shape ``(resamples,)``.
        blocks: How many independent units were resampled.
        scale: The scale on which the interval is symmetric.

    Returns:
        ``value`` without an interval if fewer than 2 units were resampled, or if more than 2.5 %
        of the draws are not finite (as in a ratio to a quantity that was 0 in some blocks);
        ``UNKNOWN`` if ``value`` is not finite.
    """
    if not np.isfinite(value):
        return UNKNOWN
    finite = np.isfinite(draws)
    unknown = finite.size == 0 or float(np.mean(~finite)) > _LEFT_OUT
    draws = draws[finite]
    if blocks < 2 or unknown:
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
    of_ratio = interval(ratio, draws, blocks=blocks, scale=Scale.LOG)
    if of_ratio.value is None:
        return UNKNOWN
    return Interval(
        value=of_ratio.value - 1.0,
        low=None if of_ratio.low is None else of_ratio.low - 1.0,
        high=None if of_ratio.high is None else of_ratio.high - 1.0,
    )


def share_interval(successes: int, trials: int, draws: Array, *, units: int) -> Interval:
    """The interval of a share; if the draws do not vary, by the rule of three over its trials.

    Args:
        successes: How many trials succeeded.
        trials: How many trials there were; with 0 the share is unknown.
        draws: Bootstrap draws of the share.
        units: How many independent units were resampled.
    """
    if trials == 0:
        return UNKNOWN
    share = interval(successes / trials, draws, blocks=units, scale=Scale.SHARE)
    if share.low is None or share.high is None or share.low < share.high:
        return share
    margin = min(
        3.0 / trials, 1.0
    )  # the 95 % bound on an event that never happened in that many trials
    if successes == trials:
        return Interval(value=1.0, low=1.0 - margin, high=1.0)
    return Interval(value=share.value, low=share.low, high=min(share.high + margin, 1.0))
