"""Whether the limits are in force at all: they are lifted where they themselves do harm. Pure.

What is limited moves its pages to and from the disk, and the application's own reads wait behind
that. Where an application keeps missing its target under the limits and waits for the disk, they
can be the cause. Nothing tells so beforehand, so they are lifted for a trial. It continues as long
as the application misses its target no more than it did under the limits: then they are of no use
to it, and the background does its work. Otherwise they come back, and the next trial is later, by a
time that doubles with every failure. What disturbed the application under the limits may end, so
they are looked at again now and then while it misses its target without them.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Final

from stallward.agent.sample import Sample
from stallward.agent.sharing.trial import PROVED_S, TrialWait, newest_ratio

SETTLE_S: Final = 10.0
"""Memory takes this long to follow new limits; what is missed meanwhile says nothing about them."""
WINDOW_S: Final = 20.0
"""The time for which limits are judged, and their absence."""
MOST_MISSED_S: Final = 12.0
"""Limits under which the application misses its target for as much of a window, and waits for the
disk, are lifted. It is long enough for limits on the disk to take effect before."""
READ_BACK_S: Final = 12.0
"""What the background reads back at the beginning of a trial is not held against the trial."""
LEAST_TRIAL_S: Final = 20.0
"""The least time of a trial."""
TOLERATED_RATIO: Final = 1.1
"""What a trial may cost over what the limits cost: chance makes as much of a difference."""
TOLERATED_COST: Final = 0.05
"""What it may cost in addition, in costs a second."""
FIRST_WAIT_S: Final = 120.0
"""The time after the first failure until the next trial."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tick:
    time_s: float
    elapsed_s: float
    cost_s: float
    """0 if the target was met; a tick costs its time if it was just missed, and twice that if the
    p95 was ten times as long."""
    waits: bool
    """Whether the application waited for the disk."""


class Lifting:
    """Says whether the limits of one node are lifted."""

    def __init__(self) -> None:
        self.lifted = False
        """Whether they are."""
        self._since_s = 0.0
        """For how long they have been in force or lifted."""
        self._cost_before = 0.0
        """What the application missed under the limits, in costs a second."""
        self._wait = TrialWait(FIRST_WAIT_S)
        self._again = TrialWait(PROVED_S)
        """After ``next_s`` without limits they are looked at again, if the target is missed."""
        self._ticks: deque[_Tick] = deque()

    def retarget(self) -> None:
        """Go on with another latency target, about which what was missed says nothing."""
        self._change(lifted=False)
        self._wait.reset()
        self._again.reset()

    def update(
        self, sample: Sample, elapsed_s: float, *, slo_ms: float, limits: bool, waits: bool
    ) -> bool:
        """Take one more sample, and say whether the limits are lifted.

        Args:
            sample: The sample.
            elapsed_s: The time since the sample before.
            slo_ms: The target.
            limits: Whether anything would be limited now.
            waits: Whether the application waits for the disk. Where it does not, limits are not
                why it misses its target.
        """
        self._since_s += elapsed_s
        self._wait.elapse(elapsed_s)
        if not limits:
            self._change(lifted=False)
            return False
        ratio = newest_ratio(sample, slo_ms, trial_s=self._since_s if self.lifted else None)
        if ratio is not None and self._since_s > (READ_BACK_S if self.lifted else SETTLE_S):
            cost_s = elapsed_s * (1.0 + math.log10(ratio)) if ratio > 1.0 else 0.0
            self._ticks.append(
                _Tick(time_s=sample.time_s, elapsed_s=elapsed_s, cost_s=cost_s, waits=waits)
            )
        while self._ticks and self._ticks[0].time_s < sample.time_s - WINDOW_S:
            self._ticks.popleft()
        if self.lifted:
            self._judge_trial()
        elif not self._wait.left_s and self._since_s >= SETTLE_S + WINDOW_S and self._misses():
            self._cost_before = self._cost()
            if self._since_s >= PROVED_S:  # they did no harm for a while
                self._again.forgive()
            self._change(lifted=True)
        return self.lifted

    def _misses(self) -> bool:
        """Whether the application misses its target, and may wait for the background's pages."""
        missed_s = sum(tick.elapsed_s for tick in self._ticks if tick.cost_s and tick.waits)
        return missed_s >= MOST_MISSED_S

    def _cost(self) -> float:
        """What is missed, in costs a second."""
        seen_s = sum(tick.elapsed_s for tick in self._ticks)
        return sum(tick.cost_s for tick in self._ticks) / seen_s if seen_s else 0.0

    def _judge_trial(self) -> None:
        """End a trial that costs more than the limits did; forgive failures if it does not."""
        if self._since_s < LEAST_TRIAL_S:
            return
        if not self._ticks or self._cost() > TOLERATED_RATIO * self._cost_before + TOLERATED_COST:
            self._wait.fail()
            self._change(lifted=False)
        elif self._since_s >= PROVED_S:
            self._wait.forgive()
            if self._since_s >= self._again.next_s and self._misses():
                self._again.fail()
                self._change(lifted=False)

    def _change(self, *, lifted: bool) -> None:
        self.lifted, self._since_s = lifted, 0.0
        self._ticks.clear()
