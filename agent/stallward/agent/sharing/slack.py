"""Whether limits are left out, because the application is far from its latency target. Pure.

Memory that is short does no harm by itself. An application whose target is generous often meets it
although the kernel takes pages from it, and then every limit costs the background its work for
nothing. Near the target it is the other way round: once the latency shows that pages are missing,
most of them are gone, and reading them back takes half a minute. So nothing is limited only while
the p95 is a small part of the target. The time near the target, and that in which it is missed, are
error budgets. When one is spent the limits come, and the next trial is later, by a time that doubles
with every failure.

It is for applications that live on files. An anonymous page has to be written before it is taken,
and where many are missed at once, reads wait behind these writes: requests stood for whole seconds
in measurements, however far the target was before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from stallward.agent.control_law.thresholds import tuned
from stallward.agent.observation.average import moved
from stallward.agent.sample import Sample
from stallward.agent.sharing.trial import PROVED_S, TrialWait, all_report, newest_ratio

AVERAGE_S: Final = 10.0
"""The time constant of the average p95, which must be known for so long before a trial."""
NEAR_RATIO: Final = 0.75
"""A p95 above this part of the target is near it."""
NEAR_BUDGET_S: Final = 4.0
"""So much time may be spent near the target or beyond."""
NEAR_SHARE: Final = 0.25
"""What comes back to that budget, as a share of the time."""
MISSED_BUDGET_S: Final = 2.0
"""So much time may be missed."""
MISSED_SHARE: Final = 0.01
"""What comes back to that one."""
FIRST_WAIT_S: Final = 600.0
"""The time after the first failure until the next trial: two missed seconds are 0.3 % of it."""


@dataclass(frozen=True, kw_only=True)
class SlackThresholds:
    """From when on an application is far from its target."""

    far_ratio: float = tuned(
        0.25, "p95 over target up to which nothing is limited for a trial; 0 for never", 0.0, 0.5
    )


class Slack:
    """Says whether the limits of one node are left out.

    Args:
        thresholds: From when on that is tried.
    """

    def __init__(self, thresholds: SlackThresholds) -> None:
        self._far_ratio = thresholds.far_ratio
        self._wait = TrialWait(FIRST_WAIT_S)
        self.retarget()

    def retarget(self) -> None:
        """Go on with another latency target, about which the p95 so far says nothing."""
        self.unlimited = False
        """Whether they are."""
        self._since_s = self._near_s = self._missed_s = 0.0
        self._average_ratio = self._known_s = 0.0
        self._wait.reset()

    def update(self, sample: Sample, elapsed_s: float, *, slo_ms: float, limits: bool) -> bool:
        """Take one more sample, and say whether the limits are left out.

        Args:
            sample: The sample.
            elapsed_s: The time since the sample before.
            slo_ms: The target.
            limits: Whether anything would be limited now.
        """
        self._wait.elapse(elapsed_s)
        ratio = newest_ratio(sample, slo_ms, trial_s=self._since_s if self.unlimited else None)
        reports = all_report(sample)
        if not reports:
            self._known_s = 0.0
        if ratio is not None:
            before = self._average_ratio if self._known_s else ratio
            self._average_ratio = moved(before, ratio, elapsed_s, AVERAGE_S)
            self._known_s += elapsed_s
        if not limits or not reports:
            self.unlimited = False
        elif self.unlimited:
            self._judge(ratio or 0.0, elapsed_s)
        elif self._known_s >= AVERAGE_S and not self._wait.left_s:
            self.unlimited = self._average_ratio <= self._far_ratio
            self._since_s = self._near_s = self._missed_s = 0.0
        return self.unlimited

    def _judge(self, ratio: float, elapsed_s: float) -> None:
        """End a trial one of whose budgets is spent; forgive failures if it lasts."""
        self._since_s += elapsed_s
        near, missed = float(ratio > NEAR_RATIO), float(ratio > 1.0)
        self._near_s = max(self._near_s + (near - NEAR_SHARE) * elapsed_s, 0.0)
        self._missed_s = max(self._missed_s + (missed - MISSED_SHARE) * elapsed_s, 0.0)
        if self._near_s > NEAR_BUDGET_S or self._missed_s > MISSED_BUDGET_S:
            self.unlimited = False
            self._wait.fail()
        elif self._since_s >= PROVED_S:
            self._wait.forgive()
