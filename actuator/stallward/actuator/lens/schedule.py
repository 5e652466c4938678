"""When to read: at multiples of the period from the start, whatever reading takes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

_ROUNDING: Final = 1e-6
"""The part of a period that a tick may be early: times are sums of fractions."""


@dataclass(slots=True)
class Schedule:
    """An absolute schedule, which does not drift. Pure: times come in.

    A tick whose time has passed before it could be read is lost, and counted; it is not made up
    for, since two readings at once would show nothing.
    """

    period_s: float
    start_s: float
    until_s: float = math.inf
    """No tick is due from here on."""
    number: int = 1
    """The next tick, or the one that is being read; the first is due at the start."""
    lost: int = field(default=0, init=False)

    @property
    def due_s(self) -> float:
        """When that tick is due."""
        return self.start_s + (self.number - 1) * self.period_s

    @property
    def over(self) -> bool:
        """Whether no tick is to come."""
        return self.number >= self._after_last

    @property
    def _after_last(self) -> float:
        return math.inf if self.until_s == math.inf else self._due_before(self.until_s) + 1

    def _due_before(self, time_s: float) -> int:
        """How many ticks are due before a time."""
        return math.ceil((time_s - self.start_s) / self.period_s - _ROUNDING)

    def advance(self, now_s: float) -> None:
        """Go on to the next tick that is still to come.

        Args:
            now_s: The time at which the last one had been read.
        """
        to_come = self._due_before(now_s) + 1
        following = max(self.number + 1, min(to_come, self._after_last))
        self.lost += int(following) - self.number - 1
        self.number = int(following)
