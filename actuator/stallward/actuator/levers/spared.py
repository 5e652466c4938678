"""Processes with which no group is paused or limited."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from stallward.actuator.errors import LeverError
from stallward.actuator.groups import Group


def daemon_pids() -> frozenset[int]:
    """Pid 1, this process and its parent: a daemon that froze itself could thaw nothing."""
    return frozenset({1, os.getpid(), os.getppid()})


@dataclass(frozen=True, slots=True)
class Spared:
    """Who must neither be frozen nor starved of memory.

    Attributes:
        listed: Processes that the configuration lists; the daemon's own are always spared.
    """

    listed: frozenset[int] = frozenset()
    _daemon: frozenset[int] = field(default_factory=daemon_pids)

    def check(self, group: Group) -> None:
        """Check right before acting: processes move.

        Raises:
            LeverError: If one of them is in ``group`` or below it.
        """
        found = (self.listed | self._daemon).intersection(group.pids(recursive=True))
        if found:
            raise LeverError(f"Process {min(found)} in {group.name} is protected.")
