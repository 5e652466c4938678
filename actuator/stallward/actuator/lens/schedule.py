"""When to read: at multiples of the period from the start, whatever reading takes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field


@dataclass(slots=True)
class Schedule:
    """An absolute schedule, which does not drift. Pure: times come in.

    A tick whose time has passed before it could be read is lost, and counted; it is not made up
    for, since two readings at once would show nothing.
    """

    period_s: float
    start_s: float
    number: int = 1
    """The next tick, or the one that is being read; the first is due at the start."""
    lost: int = field(default=0, init=False)

    @property
    def due_s(self) -> float:
        """When that tick is due."""
        return self.start_s + (self.number - 1) * self.period_s

    def advance(self, now_s: float) -> None:
        """Go on to the next tick that is still to come.

        Args:
            now_s: The time at which the last one had been read.
        """
        to_come = math.ceil((now_s - self.start_s) / self.period_s) + 1
        following = max(self.number + 1, to_come)
        self.lost += following - self.number - 1
        self.number = following
