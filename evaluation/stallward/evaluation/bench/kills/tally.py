"""Kills of a daemon's processes: the targets, the outcome of each kill, and the figures of all."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

KILL_TARGETS: Final[dict[str, tuple[float, tuple[str, ...]]]] = {
    "loop": (0.45, ("loop",)),
    "service": (0.06, ("service",)),
    "loop and service": (0.20, ("loop", "service")),
    "recorder": (0.03, ("recorder",)),
    "loop, service and recorder": (0.06, ("loop", "service", "recorder")),
    "guardian": (0.09, ("guardian",)),
    "all": (0.11, ("guardian", "loop", "service", "recorder")),
}
"""Name of a target -> its share of the kills, and the processes that are killed."""
MEANINGS: Final = {
    "kills": "kills at random instants, under pressure",
    "found_held": "kills while a setting of a group, the node or a thread was changed",
    "left_after_1_s": "kills with settings not restored 1 s later (all: at the next start)",
    "programs_ended": "programs of the background that ended, and were started again",
    "loop_lost": "kills of other processes after which the loop did not run on",
    "restore_p50_ms": "kill to complete restoration, median",
    "restore_max_ms": "kill to complete restoration, slowest",
    "restart_max_ms": "all killed: start of `stallward restore` or daemon to restoration, slowest",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """One kill and its outcome."""

    target: str
    """A key of :data:`KILL_TARGETS`."""
    took_s: float = 0.0
    """Time from the previous kill to the end of this one's checks."""
    held: bool
    """Whether any setting was changed at that instant."""
    problems: tuple[str, ...] = ()
    """Settings that were not restored in time, or what is wrong with the loop; one line each."""
    restore_s: float | None = None
    """Time until everything was restored; ``None`` if the loop was not killed, or the time is not
    known because settings were left."""


@dataclass(slots=True, kw_only=True)
class Tally:
    """The kills so far."""

    kills: list[Kill] = field(default_factory=list)
    programs_ended: int = 0
    """The programs of the background that ended, and were started again."""

    def figures(self) -> dict[str, float | None]:
        """The figures that ``stallward bench kills`` prints."""
        restores_s = [
            k.restore_s for k in self.kills if k.target != "all" and k.restore_s is not None
        ]
        restarts_s = [
            k.restore_s for k in self.kills if k.target == "all" and k.restore_s is not None
        ]
        loop_survives = [kill for kill in self.kills if not requires_restore(kill.target)]
        return {
            "kills": float(len(self.kills)),
            "found_held": float(sum(kill.held for kill in self.kills)),
            "left_after_1_s": float(
                sum(bool(kill.problems) for kill in self.kills if requires_restore(kill.target))
            ),
            "programs_ended": float(self.programs_ended),
            "loop_lost": float(sum(bool(kill.problems) for kill in loop_survives)),
            "restore_p50_ms": 1e3 * float(np.median(restores_s)) if restores_s else None,
            "restore_max_ms": 1e3 * max(restores_s) if restores_s else None,
            "restart_max_ms": 1e3 * max(restarts_s) if restarts_s else None,
        }


def requires_restore(target: str) -> bool:
    """Whether a kill of ``target`` ends the loop, so that everything must be restored."""
    return not {"loop", "guardian"}.isdisjoint(KILL_TARGETS[target][1])
