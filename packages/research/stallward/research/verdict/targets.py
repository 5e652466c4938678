"""The figures of the verdict, and what their targets mean.

The bounds of the targets come from the plan (``verdict.toml``), so they are set before there is a
result. Nothing is measured here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from stallward.evaluation.arms import ALONE, AMPLE
from stallward.evaluation.measures.estimates import Estimate, Estimates
from stallward.evaluation.results.interval import Interval

POLICY: Final = "ppo"
RULE: Final = "rule"
PARTITION: Final = "partition"
PUBLISHED: Final = "latd"
ORACLE: Final = "oracle"


class How(Enum):
    """How an arm is compared in one scenario, and how that is averaged over several."""

    LEVEL = "no other arm; the mean"
    IMPACT = "ratio less 1; the mean"
    RATIO = "ratio; the geometric mean"
    SHARE = "ratio of the sums, so that an arm that does nothing in one scenario can be compared"
    MORE = "difference; the mean"
    LESS = "difference, the other less the arm; the mean"


class Unit(Enum):
    """How a bound of a figure is written."""

    NUMBER = "{0:g}"
    PERCENT = "{1:g} %"
    CHANGE = "{1:+g} %"
    POINTS = "{1:g}"

    def of(self, bound: float) -> str:
        """The bound in words."""
        return self.value.format(bound, 100.0 * bound)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the verdict."""

    name: str
    """The figure's key."""
    title: str
    """The figure's name for people."""
    of: Callable[[Estimates], Estimate] | None
    """Takes the estimate that the figure is made from; ``None`` for the score, which is computed
    from several estimates."""
    how: How
    """How the arm is compared, and how scenarios are averaged."""
    against: str | None = None
    """The role that the arm is compared with."""
    more_is_better: bool = False
    """Whether the worst scenario is the one with the smallest value."""
    counts_windows: bool = False
    """Whether the figure is a share of windows that met the target."""
    unit: Unit = Unit.NUMBER
    """How a bound of the figure is written."""
    condition: str = ""
    """The words for "and this figure's target is met", in the target of a figure that depends on
    it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a figure has to reach, for whichever arm: an entry of a plan's ``targets``."""

    figure: str
    """Name of the figure."""
    at_least: float | None = None
    """The smallest value that meets the target; ``None`` for no such bound."""
    at_most: float | None = None
    """The largest value that meets the target; ``None`` for no such bound."""
    certain: bool = False
    """Whether the whole interval has to meet the bounds."""
    where_met: str | None = None
    """Name of another figure whose target has to be met as well."""

    def in_words(self) -> str:
        """The target as a table shows it."""
        unit = BY_NAME[self.figure].unit
        parts = []
        if self.at_least is not None:
            side = "certainly above" if self.certain else "at least"
            parts.append(f"{side} {unit.of(self.at_least)}")
        if self.at_most is not None:
            side = "certainly at most" if self.certain else "at most"
            parts.append(f"{side} {unit.of(self.at_most)}")
        if self.where_met is None:
            return " and ".join(parts)
        other = BY_NAME[self.where_met]
        condition = other.condition or f"where the target of {other.title} is met"
        return f"{' and '.join(parts)} {condition}"

    def met(self, figure: Interval, *, beyond: bool) -> bool | None:
        """Whether a figure meets the target; ``None`` if that cannot be said.

        Args:
            figure: The value and its interval.
            beyond: Whether the arm did something while the other one did nothing.
        """
        if figure.value is None:
            return True if beyond and self.at_least is not None else None
        if self.certain:
            return self.surely(figure, beyond=beyond)
        above = self.at_least is None or figure.value >= self.at_least
        return above and (self.at_most is None or figure.value <= self.at_most)

    def surely(self, figure: Interval, *, beyond: bool) -> bool | None:
        """Whether the whole interval meets the target; ``None`` without a value."""
        if figure.value is None and not beyond:
            return None
        if figure.low is None or figure.high is None:
            return False
        above = self.at_least is None or figure.low > self.at_least
        return above and (self.at_most is None or figure.high <= self.at_most)


def _mean(arm: Estimates) -> Estimate:
    return arm.mean_ms


def _p99(arm: Estimates) -> Estimate:
    return arm.p99_ms


def _attainment(arm: Estimates) -> Estimate:
    return arm.slo_attainment


def _work(arm: Estimates) -> Estimate:
    return arm.background_work


WORST_POINTS: Final = Figure(
    name="slo_points_worst", title="SLO met, points under ample, worst run", of=_attainment,
    how=How.LESS, against=AMPLE, counts_windows=True, unit=Unit.POINTS,
)  # fmt: skip
SCORE_OVER_RULE: Final = Figure(
    name="score_over_rule", title="score less the tuned rule's", of=None,
    how=How.MORE, against=RULE, more_is_better=True,
)  # fmt: skip
KEPT_AS_PARTITION: Final = Figure(
    name="slo_points_of_partition", title="SLO met, points under partition's", of=_attainment,
    how=How.LESS, against=PARTITION, counts_windows=True, unit=Unit.POINTS,
    condition="where the SLO is kept as partition keeps it",
)  # fmt: skip
WORK_OF_PARTITION: Final = Figure(
    name="work_of_partition", title="background work over partition's", of=_work,
    how=How.SHARE, against=PARTITION, more_is_better=True,
)  # fmt: skip
WORK_AGAIN: Final = Figure(
    name="work_ratio", title="background work", of=_work, how=How.SHARE, more_is_better=True,
)  # fmt: skip
LEAST_EFFECT: Final = 0.1
"""The effect on background work that a verdict should be able to show."""
SPREAD: Final = Figure(
    name="impact_p99_sd", title="SD of the p99 impact over rounds", of=_p99,
    how=How.LEVEL, unit=Unit.PERCENT,
)  # fmt: skip
SPREAD_OF_SEEDS: Final = Figure(
    name="impact_p99_sd_seeds", title="SD of the p99 impact over rounds and seeds", of=_p99,
    how=How.LEVEL, unit=Unit.PERCENT,
)  # fmt: skip
FIGURES: Final = (
    Figure(name="impact_ample_mean", title="mean latency against ample", of=_mean,
           how=How.IMPACT, against=AMPLE, unit=Unit.CHANGE),
    Figure(name="impact_ample_p99", title="p99 against ample", of=_p99,
           how=How.IMPACT, against=AMPLE, unit=Unit.CHANGE),
    Figure(name="impact_mean", title="mean latency against alone", of=_mean,
           how=How.IMPACT, against=ALONE, unit=Unit.CHANGE),
    Figure(name="impact_p99", title="p99 against alone", of=_p99,
           how=How.IMPACT, against=ALONE, unit=Unit.CHANGE),
    Figure(name="slo_points", title="SLO met, points under ample", of=_attainment,
           how=How.LESS, against=AMPLE, counts_windows=True, unit=Unit.POINTS,
           condition="where the SLO is kept"),
    WORST_POINTS,
    Figure(name="work", title="background work", of=_work, how=How.LEVEL, more_is_better=True),
    Figure(name="work_of_oracle", title="background work over the oracle's", of=_work,
           how=How.SHARE, against=ORACLE, more_is_better=True),
    Figure(name="work_of_latd", title="background work over latd's", of=_work,
           how=How.SHARE, against=PUBLISHED, more_is_better=True),
    Figure(name="p99_of_latd", title="p99 over latd's", of=_p99, how=How.RATIO,
           against=PUBLISHED, condition="at no worse p99"),
    SCORE_OVER_RULE,
    Figure(name="work_of_rule", title="background work over the tuned rule's", of=_work,
           how=How.SHARE, against=RULE, more_is_better=True),
    Figure(name="p99_of_rule", title="p99 over the tuned rule's", of=_p99, how=How.RATIO,
           against=RULE),
    KEPT_AS_PARTITION,
    WORK_OF_PARTITION,
    Figure(name="score", title="score", of=None, how=How.LEVEL, more_is_better=True),
    SPREAD,
    SPREAD_OF_SEEDS,
)  # fmt: skip
REPEAT_FIGURES: Final = (
    Figure(name="p99_ratio", title="p99", of=_p99, how=How.RATIO),
    Figure(name="mean_ratio", title="mean latency", of=_mean, how=How.RATIO),
    WORK_AGAIN,
    Figure(name="score_difference", title="score", of=None, how=How.MORE, more_is_better=True),
)  # fmt: skip
"""The figures by which an arm that was run twice is compared with itself."""
BY_NAME: Final = {figure.name: figure for figure in FIGURES}
