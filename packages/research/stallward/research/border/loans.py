"""The levels of the border between the application's memory and the background's. Pure.

At each of them ``partition`` divides the memory, with another part of the application's demand lent
to the background. At the last one it has nothing to say.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from stallward.agent.desired import KEEP_ANON, RELEASED, DesiredState
from stallward.agent.set_points import AUTO, Kept, SetPoints


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One level of the border."""

    label: str
    set_points: SetPoints = AUTO
    """What ``partition`` works within."""
    limits: bool = True
    """Whether its limits are in force."""
    keeps: bool = True
    """The same of what keeps the application's pages in memory."""

    def of(self, divided: DesiredState) -> DesiredState:
        """The part of what ``partition`` wants that is in force at this level."""
        if self.limits:
            return divided
        if not self.keeps:
            return RELEASED
        return replace(divided, slots=(), tuning=KEEP_ANON)


DIVIDED: Final = Level(label="partition")
"""What ``partition`` does by itself: it lends idle file pages at most."""
NO_LIMITS: Final = Level(label="no limits", limits=False, keeps=False)


def loan(share: float) -> Level:
    """The level at which a share of the demand is lent, whatever comes of it."""
    kept = Kept(name=f"loan of {100 * share:g} %", held_share=share)
    return Level(label=f"{100 * share:g} %", set_points=SetPoints(kept=kept))
