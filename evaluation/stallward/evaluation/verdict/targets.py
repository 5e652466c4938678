"""The figures of a verdict and what each has to reach."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from stallward.evaluation.arms import ALONE, AMPLE
from stallward.evaluation.measures.intervals import Interval

POLICY: Final = "ppo"


RULE: Final = "rule"


PUBLISHED: Final = "latd"


ORACLE: Final = "oracle"


class How(Enum):
    """How an arm is held against another, in one scenario and over several."""

    LEVEL = "as it is; the mean"
    IMPACT = "ratio less 1; the mean"
    RATIO = "ratio; the geometric mean"
    SHARE = "ratio; that of the sums, so that an arm that does nothing somewhere can be compared"
    MORE = "difference; the mean"
    LESS = "the other less the arm; the mean"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the verdict.

    Args:
        name: Its key.
        title: For people.
        of: The estimate.
        how: What is made of it.
        against: The role that it is held against.
        target: What is aimed at, in words.
        low, high: Bounds of the value that meets the target; ``None`` for none.
        certain: Whether the whole interval has to meet it.
        along: The figure that has to meet its target as well.
    """

    name: str
    title: str
    of: str
    how: How
    against: str | None = None
    target: str = ""
    low: float | None = None
    high: float | None = None
    certain: bool = False
    along: str | None = None

    @property
    def more_is_better(self) -> bool:
        """Of work and scores; of latency and misses less is."""
        return self.of in {"background_work", "score"}

    def met(self, found: Interval, *, beyond: bool) -> bool | None:
        """Whether this meets the target; ``None`` where that cannot be said.

        Args:
            found: The value and its interval.
            beyond: Whether the arm did something where the other did nothing.
        """
        if self.low is None and self.high is None:
            return None
        if found.value is None:
            return True if beyond and self.low is not None else None
        if self.certain:
            return self.surely(found, beyond=beyond)
        above = self.low is None or found.value >= self.low
        return above and (self.high is None or found.value <= self.high)

    def surely(self, found: Interval, *, beyond: bool) -> bool | None:
        """Whether the whole interval meets the target; ``None`` without a target or a value."""
        if (self.low is None and self.high is None) or (found.value is None and not beyond):
            return None
        if found.low is None or found.high is None:
            return False
        above = self.low is None or found.low > self.low
        return above and (self.high is None or found.high <= self.high)


WORST: Final = "slo_points_worst"


SPREAD: Final = "impact_p99_sd"


SEEDS: Final = "impact_p99_sd_seeds"


FIGURES: Final = (
    Figure(name="impact_ample_mean", title="mean latency against ample", of="mean_ms",
           how=How.IMPACT, against=AMPLE, target="at most +5 %", high=0.05),
    Figure(name="impact_ample_p99", title="p99 against ample", of="p99_ms",
           how=How.IMPACT, against=AMPLE, target="at most +15 %", high=0.15),
    Figure(name="impact_mean", title="mean latency against alone", of="mean_ms",
           how=How.IMPACT, against=ALONE),
    Figure(name="impact_p99", title="p99 against alone", of="p99_ms",
           how=How.IMPACT, against=ALONE),
    Figure(name="slo_points", title="SLO met, points under ample", of="slo_attainment",
           how=How.LESS, against=AMPLE, target="at most 0.5", high=0.005),
    Figure(name=WORST, title="the same of the worst run", of="slo_attainment",
           how=How.LESS, against=AMPLE, target="at most 1", high=0.01),
    Figure(name="work", title="background work", of="background_work", how=How.LEVEL),
    Figure(name="work_of_oracle", title="background work over the oracle's", of="background_work",
           how=How.SHARE, against=ORACLE, target="at least 0.85 where the SLO is kept", low=0.85,
           along="slo_points"),
    Figure(name="work_of_latd", title="background work over latd's", of="background_work",
           how=How.SHARE, against=PUBLISHED, target="at least 1.3 at no worse p99", low=1.3,
           along="p99_of_latd"),
    Figure(name="p99_of_latd", title="p99 over latd's", of="p99_ms", how=How.RATIO,
           against=PUBLISHED, target="at most 1", high=1.0),
    Figure(name="score_over_rule", title="score less the tuned rule's", of="score",
           how=How.MORE, against=RULE, target="certainly above 0", low=0.0, certain=True),
    Figure(name="work_of_rule", title="background work over the tuned rule's",
           of="background_work", how=How.SHARE, against=RULE),
    Figure(name="p99_of_rule", title="p99 over the tuned rule's", of="p99_ms", how=How.RATIO,
           against=RULE),
    Figure(name="score", title="score", of="score", how=How.LEVEL),
    Figure(name=SPREAD, title="SD of the p99 impact over rounds", of="p99_ms",
           how=How.LEVEL, target="at most 7 %", high=0.07),
    Figure(name=SEEDS, title="the same over rounds and seeds", of="p99_ms",
           how=How.LEVEL, target="at most 7 %", high=0.07),
)  # fmt: skip


AGAIN: Final = (
    Figure(name="p99_ratio", title="p99", of="p99_ms", how=How.RATIO),
    Figure(name="mean_ratio", title="mean latency", of="mean_ms", how=How.RATIO),
    Figure(name="work_ratio", title="background work", of="background_work", how=How.SHARE),
    Figure(name="score_difference", title="score", of="score", how=How.MORE),
)
"""What an arm that was run twice is held against itself by."""
