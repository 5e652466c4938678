"""When the default controller takes over, and when it hands back. Pure.

A fault takes the controller off at once. It decides again after a number of good ticks in a row
(it is asked meanwhile, but not followed), which doubles when it fails again soon, so that the
node does not flap between two controllers.

A late decision is the exception. Under memory pressure, which is when a controller is needed, any
decision may lose 50 ms to a page fault or to the scheduler; that says nothing about the next one.
So it costs its own tick, and only lateness that repeats takes the controller off.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from stallward.actuator.record.reasons import FaultKind

STEADY_TICKS: Final = 100
"""A controller that was followed for so many ticks since it returned has made up for a fault."""
MOST_DOUBLINGS: Final = 3
"""It waits at most 2 ** 3 times as long: four seconds at the full rate."""

LATE_WINDOW_TICKS: Final = 10
LATE_TICKS: Final = 3
"""Late decisions within the window that take a controller off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """Whether one controller is followed."""

    who: str = ""
    followed: bool = True
    good_ticks: int = 0
    """In a row: since it returned or, while it is not followed, since its last fault."""
    wait_ticks: int = 0
    """How many good ticks it needs, or needed last, to return."""
    late: tuple[bool, ...] = ()
    """Which of the last decisions were late, oldest first; empty while it is not followed."""

    def after(self, who: str, fault: FaultKind | None, return_after_ticks: int) -> Trust:
        """The trust after one more tick.

        Args:
            who: Whose tick; somebody new starts trusted.
            fault: What was wrong with it; ``None`` if nothing was.
            return_after_ticks: Good ticks needed after a first fault.
        """
        if who != self.who:
            return Trust(who=who).after(who, fault, return_after_ticks)
        late: tuple[bool, ...] = ()
        if self.followed:
            late = (*self.late, fault is FaultKind.LATE)[-LATE_WINDOW_TICKS:]
            if fault is FaultKind.LATE and sum(late) < LATE_TICKS:
                return replace(self, late=late)
        trust = self._judged(good=fault is None, return_after_ticks=return_after_ticks)
        return replace(trust, late=late if trust.followed else ())

    def _judged(self, *, good: bool, return_after_ticks: int) -> Trust:
        if good and (self.followed or self.good_ticks < self.wait_ticks):
            return replace(self, good_ticks=self.good_ticks + 1)
        if good:
            return replace(self, followed=True, good_ticks=1)
        if not self.followed:
            return replace(self, good_ticks=0)
        wait_ticks = return_after_ticks
        if self.wait_ticks and self.good_ticks < STEADY_TICKS:
            wait_ticks = min(2 * self.wait_ticks, return_after_ticks << MOST_DOUBLINGS)
        return replace(self, followed=False, good_ticks=0, wait_ticks=wait_ticks)
