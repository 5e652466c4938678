"""Kills of a daemon's processes: whose, what came of each, and what they come to together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

WHO: Final[dict[str, tuple[float, tuple[str, ...]]]] = {
    "loop": (0.45, ("loop",)),
    "service": (0.06, ("service",)),
    "loop and service": (0.20, ("loop", "service")),
    "recorder": (0.03, ("recorder",)),
    "loop, service and recorder": (0.06, ("loop", "service", "recorder")),
    "guardian": (0.09, ("guardian",)),
    "all": (0.11, ("guardian", "loop", "service", "recorder")),
}
"""Whom to kill, and the share of the kills."""
MEANINGS: Final = {
    "kills": "kills at random instants, under pressure",
    "found_held": "of these, with something paused, limited or tuned at that instant",
    "left_after_1_s": "kills of which anything was left 1 s later (all: at the next start)",
    "loop_lost": "kills beside the loop after which the loop did not go on",
    "restore_p50_ms": "kill to everything as it was",
    "restore_max_ms": "the same, slowest",
    "restart_max_ms": "all killed: start of `stallward restore` or the daemon to all as it was",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """One kill and what came of it."""

    who: str
    took_s: float = 0.0
    """Everything, from the kill before to the end of the look."""
    held: bool
    """Whether anything was changed at that instant."""
    left: tuple[str, ...] = ()
    """What was not as it was when it should have been."""
    restore_s: float | None = None
    """When everything was as it was; ``None`` where nothing had to be put back."""


@dataclass(slots=True, kw_only=True)
class Tally:
    """Kills so far."""

    kills: list[Kill] = field(default_factory=list)

    def figures(self) -> dict[str, float | None]:
        """What ``stallward bench kills`` prints."""
        alive = [k.restore_s for k in self.kills if k.who != "all" and k.restore_s is not None]
        dead = [k.restore_s for k in self.kills if k.who == "all" and k.restore_s is not None]
        beside = [kill for kill in self.kills if not ends_holding(kill.who)]
        return {
            "kills": float(len(self.kills)),
            "found_held": float(sum(kill.held for kill in self.kills)),
            "left_after_1_s": float(
                sum(bool(kill.left) for kill in self.kills if ends_holding(kill.who))
            ),
            "loop_lost": float(sum(bool(kill.left) for kill in beside)),
            "restore_p50_ms": 1e3 * float(np.median(alive)) if alive else None,
            "restore_max_ms": 1e3 * max(alive) if alive else None,
            "restart_max_ms": 1e3 * max(dead) if dead else None,
        }


def ends_holding(who: str) -> bool:
    """Whether a kill ends the loop, so that everything must be put back."""
    return not {"loop", "guardian"}.isdisjoint(WHO[who][1])
