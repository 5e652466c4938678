"""Processes with which no group is paused or limited."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field

from stallward.actuator.errors import LeverError
from stallward.actuator.kernel.process_trees import no_pids
from stallward.actuator.kernel.target import Target


def daemon_pids() -> frozenset[int]:
    """Pid 1, this process and its parent: a daemon that froze itself could thaw nothing."""
    return frozenset({1, os.getpid(), os.getppid()})


@dataclass(frozen=True, slots=True)
class ExemptProcesses:
    """Who must neither be frozen nor starved of memory.

    Attributes:
        listed: Processes that the configuration lists; the daemon's own are always spared.
        protected: The protected application's processes now, where a group may hold one.
    """

    listed: frozenset[int] = frozenset()
    protected: Callable[[], frozenset[int]] = no_pids
    _daemon: frozenset[int] = field(default_factory=daemon_pids)

    def pids(self) -> frozenset[int]:
        """All of them, now."""
        return self.listed | self._daemon | self.protected()

    def within(self, group: Target) -> int | None:
        """One of them that is in ``group`` or below it, if any."""
        found = self.pids().intersection(group.pids(recursive=True))
        return min(found, default=None)

    def check(self, group: Target) -> None:
        """Check right before acting: processes move.

        Raises:
            LeverError: If one of them is in ``group`` or below it.
        """
        pid = self.within(group)
        if pid is not None:
            raise LeverError(f"Process {pid} in {group.name} is protected.")
