"""How many rounds a comparison needs to see an effect. Pure.

The spread of an arm against itself (A/A) from round to round says how small an effect a number of
rounds can tell from nothing. The power is that of the two-sided t-test at 5 % on the logarithms of
the rounds' ratios, which is what the 95 % intervals of a comparison come down to.
"""

from __future__ import annotations

import math
from typing import Final

from stallward.evaluation.measures.intervals import student_975
from stallward.evaluation.results.interval import Interval

POWER: Final = 0.8
"""The chance of seeing an effect that is there."""
_MOST_ROUNDS: Final = 1000


def spread_per_round(itself: Interval, rounds: int) -> float | None:
    """The standard deviation over rounds of the logarithm of a ratio, from its interval.

    Args:
        itself: The ratio of an arm to its second run, with its 95 % interval.
        rounds: The rounds that it comes from.

    Returns:
        ``None`` without an interval, or if the interval reaches zero.
    """
    if itself.low is None or itself.high is None or itself.low <= 0.0 or rounds < 2:
        return None
    half = 0.5 * math.log(itself.high / itself.low)
    return half * math.sqrt(rounds) / student_975(rounds - 1)


def power_of(rounds: int, effect: float, spread: float) -> float:
    """The chance that the interval of a ratio leaves out 1 if the true ratio is ``1 + effect``.

    Args:
        rounds: The number of rounds, at least 2.
        effect: The effect: 0.1 is 10 % more.
        spread: The standard deviation of the ratio's logarithm over rounds, above 0.
    """
    from scipy.stats import nct  # noqa: PLC0415 - only the power needs it

    shift = math.log1p(effect) * math.sqrt(rounds) / spread
    edge = student_975(rounds - 1)
    return float(nct.sf(edge, rounds - 1, shift) + nct.cdf(-edge, rounds - 1, shift))


def rounds_for(effect: float, spread: float) -> int | None:
    """The fewest rounds that show an effect with a chance of :data:`POWER`.

    Args:
        effect: The effect: 0.1 is 10 % more.
        spread: The standard deviation of the ratio's logarithm over rounds; 0 needs 2 rounds.

    Returns:
        ``None`` if a thousand rounds are too few.
    """
    if spread == 0.0:
        return 2
    few, many = 2, _MOST_ROUNDS
    if power_of(many, effect, spread) < POWER:
        return None
    while few < many:
        middle = (few + many) // 2
        if power_of(middle, effect, spread) < POWER:
            few = middle + 1
        else:
            many = middle
    return few
