"""Means and ratios of repeated runs, with 95 % intervals by resampling, and their cells. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stallward.evaluation.measures.bootstrap import RESAMPLES, block_counts, bootstrap_ratio
from stallward.evaluation.measures.intervals import Scale, interval
from stallward.evaluation.report.experiment_page import PageCell
from stallward.evaluation.results.interval import UNKNOWN, Interval

Array = NDArray[np.float64]


def mean_over_runs(values: Array, seed: int) -> Interval:
    """The mean of what the repeats showed, ``(repeats,)``.

    Args:
        values: One value for each repeat, above 0.
        seed: Seeds the resampling.
    """
    repeats = len(values)
    counts = block_counts(repeats, RESAMPLES, np.random.default_rng(seed)) / repeats
    return interval(float(values.mean()), counts @ values, blocks=repeats, scale=Scale.LOG)


def ratio_of_means(values: Array, base: Array, seed: int) -> Interval:
    """The ratio of the means over the repeats that both have, which are resampled together.

    Args:
        values: One value for each repeat.
        base: The same of what they are compared with.
        seed: Seeds the resampling.
    """
    repeats = min(len(values), len(base))
    values, base = values[:repeats], base[:repeats]
    counts = block_counts(repeats, RESAMPLES, np.random.default_rng(seed))
    return interval(
        float(values.mean() / base.mean()),
        bootstrap_ratio(values, base, counts),
        blocks=repeats,
        scale=Scale.LOG,
    )


def over_cases(ratios: Sequence[float | None], seed: int) -> Interval:
    """The geometric mean of ratios that were measured in several cases; the cases are resampled.

    Args:
        ratios: One for each case; ``None`` where it is unknown.
        seed: Seeds the resampling.
    """
    known = np.array([ratio for ratio in ratios if ratio is not None])
    if not known.size or known.min() <= 0.0:
        return UNKNOWN
    counts = block_counts(known.size, RESAMPLES, np.random.default_rng(seed)) / known.size
    logs = np.log(known)
    return interval(
        float(np.exp(logs.mean())),
        np.asarray(np.exp(counts @ logs)),
        blocks=int(known.size),
        scale=Scale.LOG,
    )


def one_minus(ratio: Interval) -> Interval:
    """How much lower a ratio is than 1."""
    if ratio.value is None:
        return UNKNOWN
    return Interval(
        value=1.0 - ratio.value,
        low=None if ratio.high is None else 1.0 - ratio.high,
        high=None if ratio.low is None else 1.0 - ratio.low,
    )


# ---------- Figures with their intervals as cells of the pages


def percent(figure: Interval, digits: int = 0) -> str:
    """A share with its interval."""
    return _shown(figure, f".{digits}f", " %", times=100.0)


def seconds(figure: Interval) -> str:
    """A time with its interval, to a hundredth of a second."""
    return _shown(figure, ".2f", " s")


def milliseconds(figure: Interval) -> str:
    """A latency in ms with its interval; below 10 ms with a decimal."""
    return _shown(figure, ".0f" if (figure.value or 0.0) >= 10.0 else ".1f", " ms")


def three_digits(figure: Interval) -> str:
    """A figure with its interval, each to three digits."""
    return _shown(figure, ".3g")


def ratio(figure: Interval) -> str:
    """A ratio near 1 with its interval."""
    return _shown(figure, ".2f")


def factor(figure: Interval) -> str:
    """A ratio with its interval."""
    return _shown(figure, ".1f", " x")


def _shown(figure: Interval, form: str, unit: str = "", *, times: float = 1.0) -> str:
    if figure.value is None:
        return "-"
    value = f"{times * figure.value:{form}}{unit}"
    if figure.low is None or figure.high is None:
        return value
    interval = f"{times * figure.low:{form}} to {times * figure.high:{form}}"
    return PageCell(value, interval + unit if unit == " %" else interval)
