"""When a group goes over to another phase of locality, seen in the size of its working set. Pure.

Programs run through phases, each with a working set of its own size, and the transitions between
them are abrupt (Birkbeck thesis, sections 3 and 4.1). Its section 8.3 proposes to detect them "by
measuring changes in working set size"; this is such a detector: a two-sided CUSUM (Page, 1954) of
the logarithm of the size. Within a phase it knows the mean. What the logarithm exceeds the mean
by, less an allowance, adds up over time, and so does what it falls short by. Once either sum
passes a threshold, the phase is over. The next one begins when the size has settled.

A change by a factor f is noticed after ``threshold_s / (|ln f| - allowance)`` seconds: with the
defaults, a doubling after 0.3 s, a growth by a fifth after 1.5 s. Changes by less than the
allowance, or shorter than that, are no phases.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from stallward.agent.observation.demand import held_bytes
from stallward.agent.sample import GroupSample

MAX_ELAPSED_S: Final = 1.0
"""A longer time between two sizes counts as this long."""
LEAST_BYTES: Final = 4 * 1024 * 1024
"""A smaller group has no phases: it is empty, or it still starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseThresholds:
    """The numbers of the detector."""

    allowance: float = 0.05
    """Deviation of the size's logarithm that is no evidence; 0.05 is about 5 %."""
    threshold_s: float = 0.2
    """Sum of the deviations beyond it, in seconds, at which a phase is over."""
    settle_s: float = 1.0
    """How long the size must stay within the allowance for the next phase to begin."""
    averaged_s: float = 10.0
    """Time constant of the mean within a phase, which so follows slow drifts."""


class PhaseDetector:
    """Follows the size of one working set.

    Attributes:
        phase_bytes: The mean size in this phase; ``None`` in a transition.
        changes: How many phases have ended.
        since_change_s: The time since the last of them ended; infinite before the first.
    """

    def __init__(self, thresholds: PhaseThresholds | None = None) -> None:
        self._numbers = thresholds or PhaseThresholds()
        self.phase_bytes: float | None = None
        self.changes = 0
        self.since_change_s = math.inf
        self._mean = 0.0
        self._above = self._below = 0.0
        self._restart()

    def _restart(self) -> None:
        """Forget the present phase."""
        self.phase_bytes = None
        self._lowest, self._highest, self._still_s = -math.inf, math.inf, 0.0

    def update(self, size_bytes: float, elapsed_s: float) -> bool:
        """Take one more size.

        Args:
            size_bytes: The size of the working set.
            elapsed_s: The time since the size before.

        Returns:
            Whether a phase has ended with this size.
        """
        passed_s = min(max(elapsed_s, 0.0), MAX_ELAPSED_S)
        self.since_change_s += passed_s
        if not size_bytes >= LEAST_BYTES:
            ended = self.phase_bytes is not None
            self._restart()
            return self._end() if ended else False
        value = math.log(size_bytes)
        if self.phase_bytes is None:
            self._settle(value, passed_s)
            return False
        deviation = value - self._mean
        self._above = max(self._above + (deviation - self._numbers.allowance) * passed_s, 0.0)
        self._below = max(self._below + (-deviation - self._numbers.allowance) * passed_s, 0.0)
        if max(self._above, self._below) > self._numbers.threshold_s:
            self._restart()
            self._settle(value, passed_s)
            return self._end()
        self._mean += deviation * (1.0 - math.exp(-passed_s / self._numbers.averaged_s))
        self.phase_bytes = math.exp(self._mean)
        return False

    def _end(self) -> bool:
        self.changes += 1
        self.since_change_s = 0.0
        return True

    def _settle(self, value: float, passed_s: float) -> None:
        """Begin a phase once the size has kept still."""
        self._lowest = min(self._lowest, value)
        self._highest = max(self._highest, value)
        self._still_s += passed_s
        if self._highest - self._lowest > self._numbers.allowance:
            self._lowest = self._highest = value
            self._still_s = 0.0
        elif self._still_s >= self._numbers.settle_s:
            self._mean = value
            self.phase_bytes = math.exp(value)
            self._above = self._below = 0.0


class PhaseChanges:
    """The phases of all background groups.

    The size of a working set is taken to be what the group holds in memory and in swap. That
    misses the phases of a group that keeps all that it ever used, and those that a limit hides.
    ``working_set_bytes`` would show them, but it wanders with the pressure: in a recording it
    ended eight phases in 66 s for a group whose working set never changed.
    """

    def __init__(self, thresholds: PhaseThresholds | None = None) -> None:
        self._thresholds = thresholds
        self.detectors: list[PhaseDetector] = []
        """One for each slot."""

    def update(self, groups: Sequence[GroupSample], elapsed_s: float) -> tuple[int, ...]:
        """Take one more sample of every group.

        Args:
            groups: The groups, in the order of their slots; one whose memory cannot be read
                keeps its phase.
            elapsed_s: The time since the sample before.

        Returns:
            The slots in which a phase has ended.
        """
        while len(self.detectors) < len(groups):
            self.detectors.append(PhaseDetector(self._thresholds))
        ended = []
        for slot, group in enumerate(groups):
            known = group.memory_usage_bytes is not None
            if known and self.detectors[slot].update(held_bytes(group), elapsed_s):
                ended.append(slot)
        return tuple(ended)
