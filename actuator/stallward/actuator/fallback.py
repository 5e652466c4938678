"""When the default controller takes over, and when it hands back. Pure.

A fault takes the controller off at once. It decides again after a number of good ticks in a row
(it is asked meanwhile, but not followed), which doubles when it fails again soon, so that the
node does not flap between two controllers.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Final

FALLBACK_NOTE: Final = "fallback, "
"""How the note starts that says why the default controller decided."""
STEADY_TICKS: Final = 100
"""A controller that was followed for so many ticks since it returned has made up for a fault."""
MOST_DOUBLINGS: Final = 3
"""It waits at most 2 ** 3 times as long: four seconds at the full rate."""


class Fault(enum.Enum):
    """Why a controller was not followed."""

    STALE = "stale sample"
    INVALID = "invalid sample"
    LOST = "signal lost"
    OBSERVATION = "observation not finite"
    RAISED = "controller failed"
    UNUSABLE = "decision unusable"
    NOT_FINITE = "decision not finite"
    LATE = "decision late"
    OUT_OF_RANGE = "outside the training range"
    WAITING = "waiting"
    """Nothing is wrong now; it has not been good for long enough yet."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault and what exactly was found."""

    fault: Fault
    detail: str

    def note(self, who: str) -> str:
        """The note in the tick record."""
        return f"{FALLBACK_NOTE}{self.fault.value}: {who}: {self.detail}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """Whether one controller is followed."""

    who: str = ""
    followed: bool = True
    good_ticks: int = 0
    """In a row: since it returned or, while it is not followed, since its last fault."""
    wait_ticks: int = 0
    """How many good ticks it needs, or needed last, to return."""

    def after(self, who: str, *, good: bool, return_after_ticks: int) -> Trust:
        """The trust after one more tick.

        Args:
            who: Whose tick; somebody new starts trusted.
            good: Whether nothing was wrong with it.
            return_after_ticks: Good ticks needed after a first fault.
        """
        if who != self.who:
            return Trust(who=who).after(who, good=good, return_after_ticks=return_after_ticks)
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
