"""Bounds that hold at every look, so that an experiment may stop because of what it shows. Pure.

Those of a mean of paired differences are the values that a Bayesian t-test does not reject
(Pérez-Ortiz, Lardy, de Heide and Grünwald, Annals of Statistics 52(4), 2024). Those of the share
of seconds in which the target was kept are of a normal mixture (Robbins, 1970).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

PRIOR_EFFECT: Final = 1.0
"""The standard deviation of the standardised effect under the prior: the bounds are narrowest for
effects about as large as the spread of one pair."""
LEAST_BATCHES: Final = 6
"""From fewer batches nothing is concluded about the target."""
LEAST_SPREAD: Final = 0.1
"""The spread of batches is taken for at least this: a few that are all alike say little."""


def critical_t(count: int, alpha: float) -> float:
    """The largest t statistic whose evidence against no effect is below ``1 / alpha``.

    Args:
        count: How many values the statistic comes from.
        alpha: The chance of a false alarm at any look.

    Returns:
        The statistic; infinite if every one has too little evidence.
    """
    if count < 2:
        return math.inf
    spread = 1.0 + count * PRIOR_EFFECT**2
    needed = (spread / alpha**2) ** (1.0 / count)
    if needed >= spread:
        return math.inf
    return math.sqrt(max((count - 1.0) * (needed - 1.0) / (1.0 - needed / spread), 0.0))


def mean_bounds(values: Sequence[float], *, alpha: float = 0.05) -> tuple[float, float]:
    """The lower and the upper bound of the mean of independent values of one normal distribution.

    They are infinite as long as too few values came.
    """
    count = len(values)
    reach = critical_t(count, alpha)
    if math.isinf(reach):
        return -math.inf, math.inf
    mean = math.fsum(values) / count
    reach *= _deviation(values) / math.sqrt(count)
    return mean - reach, mean + reach


def attainment_reach(batches: Sequence[float], *, alpha: float) -> float:
    """How far the mean of batches may be from the true share, at any look.

    Args:
        batches: The share of each batch of seconds in which the target was kept.
        alpha: The chance that it is ever further away.
    """
    count = len(batches)
    return spread_of(batches) * math.sqrt(
        (count + 1) / count**2 * math.log((count + 1) / alpha**2)
    )


def certainly_lower(
    batches: Sequence[float], others: Sequence[float], *, margin: float, alpha: float = 0.01
) -> bool:
    """Whether one controller certainly keeps the target less often than the other.

    Args:
        batches: The share of each batch of seconds in which it kept the target.
        others: The same of the other.
        margin: By how much less often it may.
        alpha: The chance to say so although it does not.
    """
    if min(len(batches), len(others)) < LEAST_BATCHES:
        return False
    drop = sum(others) / len(others) - sum(batches) / len(batches)
    reaches = (attainment_reach(one, alpha=alpha / 2) for one in (batches, others))
    return drop > margin + sum(reaches)


def spread_of(batches: Sequence[float]) -> float:
    """The standard deviation of batches, at least :data:`LEAST_SPREAD`."""
    return max(_deviation(batches), LEAST_SPREAD)


def _deviation(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    squares = math.fsum((one - mean) ** 2 for one in values)
    return math.sqrt(squares / max(len(values) - 1, 1))
