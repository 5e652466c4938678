"""Kills of a daemon's processes: the targets, the outcome of each kill, and the figures of all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

CHECK_S: Final = 1.0
"""Time after a kill within which everything must be restored."""
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
    arm: str = ""
    """The label of the arm whose daemon was killed."""
    took_s: float = 0.0
    """Time from the previous kill to the end of this one's checks."""
    held: bool
    """Whether any setting was changed at that instant."""
    problems: tuple[str, ...] = ()
    """Settings that were not restored in time, or what is wrong with the loop; one line each."""
    restore_s: float | None = None
    """Time until everything was restored; ``None`` if the loop was not killed, or the time is not
    known because settings were left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmKills:
    """The kills of one arm."""

    arm: str
    kills: int
    found_held: int
    """Kills while a setting was changed. An arm may change none, and have none to restore."""
    left_after_1_s: int
    loop_lost: int
    programs_ended: int
    restore_max_ms: float | None
    restart_max_ms: float | None


@dataclass(slots=True, kw_only=True)
class Tally:
    """The kills so far."""

    kills: list[Kill] = field(default_factory=list)
    ended: Counter[str] = field(default_factory=Counter)
    """Label of an arm -> the programs of the background that ended, and were started again."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Label of an arm that the node does not support, or whose client does not start -> why."""

    def figures(self) -> dict[str, float | None]:
        """The figures that ``stallward bench kills`` prints, over all arms."""
        restores_ms = _times_ms(self.kills, after_all=False)
        return {
            "kills": float(len(self.kills)),
            "found_held": float(sum(kill.held for kill in self.kills)),
            "left_after_1_s": float(_with_problems(self.kills, restored=True)),
            "programs_ended": float(self.ended.total()),
            "loop_lost": float(_with_problems(self.kills, restored=False)),
            "restore_p50_ms": float(np.median(restores_ms)) if restores_ms else None,
            "restore_max_ms": max(restores_ms, default=None),
            "restart_max_ms": max(_times_ms(self.kills, after_all=True), default=None),
        }

    def by_arm(self) -> tuple[ArmKills, ...]:
        """The figures of each arm that was killed, in the order of their first kills."""
        rows = []
        for arm in dict.fromkeys(kill.arm for kill in self.kills):
            kills = [kill for kill in self.kills if kill.arm == arm]
            rows.append(
                ArmKills(
                    arm=arm,
                    kills=len(kills),
                    found_held=sum(kill.held for kill in kills),
                    left_after_1_s=_with_problems(kills, restored=True),
                    loop_lost=_with_problems(kills, restored=False),
                    programs_ended=self.ended[arm],
                    restore_max_ms=max(_times_ms(kills, after_all=False), default=None),
                    restart_max_ms=max(_times_ms(kills, after_all=True), default=None),
                )
            )
        return tuple(rows)


def _times_ms(kills: Sequence[Kill], *, after_all: bool) -> list[float]:
    """The known times of restoring, where all processes were killed or where some were."""
    return [
        1e3 * kill.restore_s
        for kill in kills
        if kill.restore_s is not None and (kill.target == "all") is after_all
    ]


def _with_problems(kills: Sequence[Kill], *, restored: bool) -> int:
    """How many kills have problems, of those after which all is restored or of the others."""
    return sum(bool(kill.problems) for kill in kills if requires_restore(kill.target) is restored)


def requires_restore(target: str) -> bool:
    """Whether a kill of ``target`` ends the loop, so that everything must be restored."""
    return not {"loop", "guardian"}.isdisjoint(KILL_TARGETS[target][1])
