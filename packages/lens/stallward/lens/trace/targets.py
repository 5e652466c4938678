"""Whose memory is traced: a process, its descendants, a cgroup, or all processes."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Protocol

from stallward.actuator.errors import KernelFileError
from stallward.actuator.kernel.cgroups import Cgroup
from stallward.actuator.kernel.process_table import ProcessTable, read_seen, send_signal
from stallward.actuator.sensors.processes.members import GroupMembers
from stallward.lens.errors import LensError

_EVERY: Final = 1 << 30


class Target(Protocol):
    """Lists the processes that are traced."""

    @property
    def pid(self) -> int | None:
        """The process with which the trace ends; ``None`` if there is none."""

    @property
    def name(self) -> str:
        """What is traced, in a few words."""

    def pids(self) -> Iterable[int]:
        """The processes now, ascending; none once it has ended."""

    def ended(self) -> bool:
        """Whether there will be nothing more to trace."""

    def close(self) -> None:
        """Close every file."""


class Members:
    """All processes that have been in a target: what they did at last is known after their end.

    Args:
        target: The target.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._pids: set[int] = set()

    def pids(self) -> set[int]:
        """The processes up to now."""
        self._pids.update(self._target.pids())
        if self._target.pid is not None:  # it may have ended before the first look
            self._pids.add(self._target.pid)
        return self._pids


class OneProcess:
    """One process, and where asked for all that it starts.

    Of a process that is started and loses its parent between two ticks nothing is known; a cgroup
    misses none.

    Args:
        proc: The /proc directory.
        pid: The process.
        tree: Whether its descendants are traced, too.

    Raises:
        LensError: If there is no such process.
    """

    def __init__(self, proc: Path, pid: int, *, tree: bool = False) -> None:
        found = read_seen(proc, pid)
        if found is None:
            raise LensError(
                f"There is no process {pid}.",
                next_step="`stallward trace largest` lists those that there are.",
            )
        if found.kernel:
            raise LensError(
                f"Process {pid} is a thread of the kernel, which has no memory of its own.",
                next_step="`stallward trace largest` lists processes that have.",
            )
        self.pid: int | None = pid
        self._pid = pid
        self._proc = proc
        self._root = found
        self._table = ProcessTable(proc) if tree else None
        self._members = {pid: found}

    @property
    def name(self) -> str:
        """What is traced, in a few words."""
        return f"process {self._pid}"

    def pids(self) -> list[int]:
        """The processes now, ascending; none once the first one has ended."""
        if self.ended():
            return []
        if self._table is not None:
            new, gone = self._table.refresh(most=_EVERY)
            for seen in gone:
                self._members.pop(seen.pid, None)
            for seen in new:  # parents come before their children
                if seen.parent in self._members or seen.pid == self._pid:
                    self._members[seen.pid] = seen
        return sorted(self._members)

    def terminate(self) -> None:
        """Ask all to end that were there at the last look."""
        for seen in self._members.values():
            with contextlib.suppress(KernelFileError):
                send_signal(self._proc, seen.pid, seen.start_time_ticks, signal.SIGTERM)

    def ended(self) -> bool:
        """Whether the first process has ended."""
        now = read_seen(self._proc, self._pid)
        return now is None or now.ended or now.ref != self._root.ref

    def close(self) -> None:
        """Do nothing: no file is kept open."""


class StartedProcess:
    """A command, and all that it starts; it begins when everything is ready to trace it.

    Args:
        proc: The /proc directory.
    """

    name = "the command"

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self._process: OneProcess | None = None

    def begin(self, pid: int) -> None:
        """Trace this process from now on."""
        self._process = OneProcess(self._proc, pid, tree=True)

    @property
    def pid(self) -> int | None:
        """The process with which the trace ends; ``None`` before it has begun."""
        return None if self._process is None else self._process.pid

    def pids(self) -> list[int]:
        """The processes now, ascending."""
        return [] if self._process is None else self._process.pids()

    def ended(self) -> bool:
        """Whether the command has ended."""
        return self._process is not None and self._process.ended()

    def terminate(self) -> None:
        """Ask all to end that were there at the last look."""
        if self._process is not None:
            self._process.terminate()

    def close(self) -> None:
        """Do nothing: no file is kept open."""


class GroupTarget:
    """All processes of a cgroup and of those below it.

    Args:
        group: The group.

    Raises:
        LensError: If there is no such group.
    """

    pid: int | None = None

    def __init__(self, group: Cgroup) -> None:
        self.group = group
        if self.ended():
            raise LensError(
                f"There is no cgroup {group.name or '/'}.",
                next_step="Give its path relative to the root of the hierarchy, such as "
                "system.slice/nginx.service.",
            )
        self._members = GroupMembers(group)

    @property
    def name(self) -> str:
        """What is traced, in a few words."""
        return f"cgroup {self.group.name or '/'}"

    def pids(self) -> list[int]:
        """The processes now, ascending."""
        return sorted(self._members.pids())

    def ended(self) -> bool:
        """Whether the group has been removed from every hierarchy."""
        return not any(path.is_dir() for path in self.group.dirs)

    def close(self) -> None:
        """Close every file."""
        self._members.close()


class AllProcesses:
    """All processes of the machine but the threads of the kernel.

    Args:
        proc: The /proc directory.
    """

    pid: int | None = None
    name = "all processes"

    def __init__(self, proc: Path) -> None:
        self._table = ProcessTable(proc)

    def pids(self) -> list[int]:
        """The processes now, ascending."""
        self._table.refresh(most=_EVERY)
        return sorted(pid for pid, seen in self._table.seen.items() if not seen.kernel)

    def ended(self) -> bool:
        """Never: there is always a process."""
        return False

    def close(self) -> None:
        """Do nothing: no file is kept open."""
