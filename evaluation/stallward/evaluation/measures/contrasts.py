"""Arms against each other, and how much each varies from round to round. Pure.

Two intervals that overlap do not say that two arms are alike, for both carry the luck of the same
rounds. A contrast is resampled jointly: each resample takes the same rounds of both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

import numpy as np

from stallward.evaluation.measures.bootstrap import Array
from stallward.evaluation.measures.intervals import Interval, Scale, interval

RATIOS: Final = ("mean_ms", "p50_ms", "p95_ms", "p99_ms", "background_work")
"""Compared as the first arm over the second."""
ATTAINMENT: Final = "slo_attainment"
"""Compared as the first arm less the second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A figure and its bootstrap draws, ``(resamples,)``."""

    value: float
    draws: Array


Estimates = Mapping[str, Estimate]
"""Figure -> estimate, of one arm."""


def contrasts(
    arms: Mapping[str, Estimates], units: int, attainment_units: int, *, jointly: bool
) -> list[dict[str, Any]]:
    """Every pair of arms, the first against the second.

    Args:
        arms: Their estimates, with the same resamples in the same rows.
        units: How many rounds (or runs of seconds) were resampled.
        attainment_units: The same of attainment, whose windows may be longer than a second.
        jointly: Whether a row of draws holds the same rounds of every arm.
    """
    return [
        {"arm": one, "against": two}
        | _contrast(arms[one], arms[two], units, attainment_units, jointly=jointly)
        for one, two in combinations(arms, 2)
    ]


def _contrast(
    one: Estimates, two: Estimates, units: int, attainment_units: int, *, jointly: bool
) -> dict[str, Any]:
    found: dict[str, Interval] = {}
    with np.errstate(divide="ignore", invalid="ignore"):
        for name in RATIOS:
            a, b = one[name], two[name]
            found[f"{name.removesuffix('_ms')}_ratio"] = interval(
                float(np.divide(a.value, b.value)),
                _paired(a.draws, b.draws, jointly=jointly, ratio=True),
                blocks=units,
                scale=Scale.LOG,
            )
    a, b = one[ATTAINMENT], two[ATTAINMENT]
    found[f"{ATTAINMENT}_difference"] = interval(
        a.value - b.value,
        _paired(a.draws, b.draws, jointly=jointly, ratio=False),
        blocks=attainment_units,
        scale=Scale.LINEAR,
    )
    return {name: value.as_json() for name, value in found.items()}


def _paired(one: Array, two: Array, *, jointly: bool, ratio: bool) -> Array:
    """Draws of the contrast; of independent resamples, the rows of one are turned."""
    other = two if jointly else np.roll(two, two.size // 2)
    return np.asarray(one / other if ratio else one - other)


def spread(p99_ms: Array, ample_p99_ms: Array, met: Sequence[float]) -> dict[str, float | None]:
    """How much an arm varies over its rounds.

    Args:
        p99_ms: Of each round.
        ample_p99_ms: Of each round with ample memory.
        met: Share of windows in which the target was met, of each round.
    """
    impacts = p99_ms / ample_p99_ms - 1.0
    known = impacts[np.isfinite(impacts)]
    shares = np.asarray(met)[np.isfinite(met)]
    return {
        "impact_ample_p99_sd": float(known.std(ddof=1)) if known.size > 1 else None,
        "impact_ample_p99_worst": float(known.max()) if known.size else None,
        "slo_attainment_worst": float(shares.min()) if shares.size else None,
    }
