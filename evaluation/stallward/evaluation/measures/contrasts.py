"""Contrasts between arms, and the variation of each arm from round to round. Pure.

Overlapping intervals do not mean that two arms are alike, because both include the luck of the
same rounds. A contrast is therefore resampled jointly: each resample takes the same rounds of both
arms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from stallward.evaluation.measures.bootstrap import Array
from stallward.evaluation.measures.intervals import Scale, interval
from stallward.evaluation.results.comparison import Contrast, Spread
from stallward.evaluation.results.interval import Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A figure and its bootstrap draws, ``(resamples,)``."""

    value: float
    draws: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimates:
    """The estimates of one arm that arms are compared by."""

    p50_ms: Estimate
    p95_ms: Estimate
    p99_ms: Estimate
    mean_ms: Estimate
    background_work: Estimate
    slo_attainment: Estimate


def contrasts(
    arms: Mapping[str, Estimates], units: int, attainment_units: int, *, jointly: bool
) -> tuple[Contrast, ...]:
    """The contrast of every pair of arms, the first against the second.

    Args:
        arms: Label -> estimates; the same rows of draws are the same resamples.
        units: How many rounds (or runs of seconds) were resampled.
        attainment_units: The same number for attainment, whose windows may be longer than a
            second.
        jointly: Whether a row of draws holds the same rounds of every arm.
    """

    def ratio(one: Estimate, two: Estimate) -> Interval:
        with np.errstate(divide="ignore", invalid="ignore"):
            value = float(np.divide(one.value, two.value))
            draws = _paired(one.draws, two.draws, jointly=jointly, ratio=True)
        return interval(value, draws, blocks=units, scale=Scale.LOG)

    def difference(one: Estimate, two: Estimate) -> Interval:
        draws = _paired(one.draws, two.draws, jointly=jointly, ratio=False)
        return interval(one.value - two.value, draws, blocks=attainment_units, scale=Scale.LINEAR)

    return tuple(
        Contrast(
            arm=arm,
            against=against,
            mean_ratio=ratio(one.mean_ms, two.mean_ms),
            p50_ratio=ratio(one.p50_ms, two.p50_ms),
            p95_ratio=ratio(one.p95_ms, two.p95_ms),
            p99_ratio=ratio(one.p99_ms, two.p99_ms),
            background_work_ratio=ratio(one.background_work, two.background_work),
            slo_attainment_difference=difference(one.slo_attainment, two.slo_attainment),
        )
        for (arm, one), (against, two) in combinations(arms.items(), 2)
    )


def _paired(one: Array, two: Array, *, jointly: bool, ratio: bool) -> Array:
    """The draws of a contrast; for independent resamples, the rows of one arm are shifted."""
    other = two if jointly else np.roll(two, two.size // 2)
    return np.asarray(one / other if ratio else one - other)


def spread(p99_ms: Array, ample_p99_ms: Array, met: Sequence[float]) -> Spread:
    """How much an arm varies over its rounds.

    Args:
        p99_ms: The p99 of each round.
        ample_p99_ms: The p99 with ample memory of each round.
        met: The share of windows that met the target, of each round.
    """
    impacts = p99_ms / ample_p99_ms - 1.0
    known = impacts[np.isfinite(impacts)]
    shares = np.asarray(met)[np.isfinite(met)]
    return Spread(
        impact_ample_p99_sd=float(known.std(ddof=1)) if known.size > 1 else None,
        impact_ample_p99_worst=float(known.max()) if known.size else None,
        slo_attainment_worst=float(shares.min()) if shares.size else None,
    )
