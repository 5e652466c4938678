"""When the default controller takes over, and when it hands back. Pure.

After a fault the controller is not followed any more. It is still asked at every tick, and is
followed again after a number of good ticks in a row. The number doubles when the controller fails
again soon, so that the node does not flap between two controllers.

A late decision is the exception. Under memory pressure, which is when a controller is needed, any
decision may lose 50 ms to a page fault or to the scheduler; that says nothing about the next one.
So one late decision costs its own tick only, and the controller is dropped when several are late.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from stallward.actuator.record.reasons import FaultKind

STEADY_TICKS: Final = 100
"""A controller that was followed for this many good ticks starts again with the shortest wait."""
MAX_DOUBLINGS: Final = 3
"""The longest wait is 2 ** 3 times the shortest: four seconds at the full rate."""

LATE_WINDOW_TICKS: Final = 10
LATE_TICKS: Final = 3
"""How many late decisions within the window make a fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """Whether a controller is followed, and what that depends on."""

    controller: str = ""
    """The name of the controller, or of the client, that decides."""
    followed: bool = True
    good_ticks: int = 0
    """Good ticks in a row: since it returned or, while not followed, since its last fault."""
    wait_ticks: int = 0
    """How many good ticks in a row it needs, or needed last, to be followed again."""
    late: tuple[bool, ...] = ()
    """Whether each of the last decisions was late, oldest first; empty while not followed."""

    def after(self, controller: str, fault: FaultKind | None, return_after_ticks: int) -> Trust:
        """Return the trust after one more tick.

        Args:
            controller: The controller of this tick; another than before starts trusted.
            fault: What was wrong at this tick; ``None`` if nothing was.
            return_after_ticks: How many good ticks in a row are needed after a first fault.
        """
        if controller != self.controller:
            new = Trust(controller=controller)
            return new.after(controller, fault, return_after_ticks)
        late: tuple[bool, ...] = ()
        if self.followed:
            late = (*self.late, fault is FaultKind.LATE)[-LATE_WINDOW_TICKS:]
            if fault is FaultKind.LATE and sum(late) < LATE_TICKS:
                return replace(self, late=late)
        trust = self._after_tick(good=fault is None, return_after_ticks=return_after_ticks)
        return replace(trust, late=late if trust.followed else ())

    def _after_tick(self, *, good: bool, return_after_ticks: int) -> Trust:
        if good and (self.followed or self.good_ticks < self.wait_ticks):
            return replace(self, good_ticks=self.good_ticks + 1)
        if good:
            return replace(self, followed=True, good_ticks=1)
        if not self.followed:
            return replace(self, good_ticks=0)
        wait_ticks = return_after_ticks
        if self.wait_ticks and self.good_ticks < STEADY_TICKS:
            wait_ticks = min(2 * self.wait_ticks, return_after_ticks << MAX_DOUBLINGS)
        return replace(self, followed=False, good_ticks=0, wait_ticks=wait_ticks)
