"""Exempt processes: a group that holds one of them is never paused or limited."""

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
    """Processes that must neither be frozen nor starved of memory."""

    listed: frozenset[int] = frozenset()
    """Processes that the configuration lists; the daemon's own are always exempt."""
    protected: Callable[[], frozenset[int]] = no_pids
    """The protected application's processes now, where a group may hold one."""
    _daemon: frozenset[int] = field(default_factory=daemon_pids)

    def pids(self) -> frozenset[int]:
        """All exempt processes now."""
        return self.listed | self._daemon | self.protected()

    def within(self, group: Target) -> int | None:
        """The lowest pid of an exempt process in ``group`` or below it, if there is one."""
        return min(group.among(self.pids()), default=None)

    def check(self, group: Target) -> None:
        """Refuse to act on ``group``; call right before acting, since processes move.

        Raises:
            LeverError: If an exempt process is in ``group`` or below it.
        """
        pid = self.within(group)
        if pid is not None:
            raise LeverError(f"Process {pid} in {group.name} is protected.")
