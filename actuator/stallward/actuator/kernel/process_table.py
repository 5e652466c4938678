"""All processes of the machine, kept up to date a few at a time.

Listing /proc costs about 0.5 ms for a thousand processes; reading the stat of each would cost
ten. So only new processes are read, and a few of the rest in turn, which shows a pid that is used
again. Nothing here waits: listing and stat take no lock that a starved process may hold. Reading
a command line does, and is done elsewhere.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stallward.actuator.errors import KernelFileError
from stallward.actuator.kernel.files import read_bytes
from stallward.actuator.kernel.process_identity import stat_fields
from stallward.agent.desired import ProcessRef

NEW_PER_REFRESH: Final = 256
"""New processes that one refresh reads; the next reads more."""
RECHECKED_PER_REFRESH: Final = 8
_PIDS: Final = 1 << 31
_KERNEL_THREAD: Final = 0x0020_0000
"""PF_KTHREAD (include/linux/sched.h)."""
_ENDED: Final = frozenset({b"Z", b"X", b"x"})
STOPPED: Final = frozenset({b"T", b"t"})
"""The states of a process that a signal or a tracer has stopped."""


@dataclass(slots=True)
class Seen:
    """One process as its /proc/PID/stat said at the last read."""

    pid: int
    start_time_ticks: int
    parent: int
    group: int
    session: int
    ended: bool = False
    """Whether it is a zombie, which can neither be stopped nor holds memory."""
    kernel: bool = False
    stopped: bool = False

    @property
    def ref(self) -> ProcessRef:
        """The permanent identity: pid and start time."""
        return ProcessRef(pid=self.pid, start_time_ticks=self.start_time_ticks)

    @property
    def age_order(self) -> tuple[int, int]:
        """A key that sorts parents before children (except where pids wrapped within 10 ms)."""
        return self.start_time_ticks, self.pid


def parse_seen(content: bytes, path: Path | str, pid: int) -> Seen:
    """Parse the /proc/PID/stat of one process.

    Raises:
        KernelFileError: If the content is malformed or cut short.
    """
    fields = stat_fields(content, path)
    try:
        parent, group, session, flags = (int(fields[i]) for i in (1, 2, 3, 6))
        threads = int(fields[17])
        # A pid is an int of the kernel; without a group or session it is 0 or -1.
        if not 0 <= parent < _PIDS or max(abs(group), abs(session)) >= _PIDS:
            raise ValueError("no pid")
    except ValueError as error:
        raise KernelFileError(path, f"not a process's stat: {content[:80]!r}") from error
    return Seen(
        pid=pid,
        start_time_ticks=int(fields[19]),
        parent=parent,
        group=group,
        session=session,
        # The first thread may end while other threads run.
        ended=fields[0] in _ENDED and threads <= 1,
        kernel=bool(flags & _KERNEL_THREAD),
        stopped=fields[0] in STOPPED,
    )


def look_at(proc: Path, pid: int) -> Seen | None:
    """Read one process; ``None`` if it is gone.

    Raises:
        KernelFileError: If it is there, as far as can be said, but cannot be read now.
    """
    path = f"{proc}/{pid}/stat"  # making a Path takes longer than reading the file
    content = read_bytes(path)
    return parse_seen(content, path, pid) if content else None


def read_seen(proc: Path, pid: int) -> Seen | None:
    """Read one process; ``None`` if it is gone or its stat cannot be used."""
    try:
        return look_at(proc, pid)
    except KernelFileError:
        return None


class ProcessTable:
    """All processes of the machine.

    Args:
        proc: The /proc directory.
    """

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self.seen: dict[int, Seen] = {}
        """The processes by pid."""
        self._turn: list[int] = []
        self.fault = ""
        """Why the last listing of /proc failed; empty if it did not."""

    def refresh(self, *, most: int = NEW_PER_REFRESH) -> tuple[list[Seen], list[Seen]]:
        """Update the table.

        Args:
            most: How many new processes to read at most.

        Returns:
            The new processes, parents before children, and the ended ones. A pid that is used
            again is in both lists.
        """
        try:
            names = os.listdir(self._proc)  # noqa: PTH208 - names only, of thousands
        except OSError as error:
            self.fault = f"{self._proc}: cannot list processes ({error.strerror})"
            return [], []
        self.fault = ""
        now = {int(name) for name in names if name.isdigit()}
        gone = [self.seen.pop(pid) for pid in self.seen.keys() - now]
        fresh = now - self.seen.keys()
        new = []
        for pid in sorted(fresh)[:most] if len(fresh) > most else fresh:
            process = read_seen(self._proc, pid)
            if process is not None:
                self.seen[pid] = process
                new.append(process)
        for before, after in self._recheck():
            gone.append(before)
            new.append(after)
        new.sort(key=lambda seen: seen.age_order)
        return new, gone

    def _recheck(self) -> list[tuple[Seen, Seen]]:
        """Read a few known processes in turn; see :meth:`recheck`."""
        if not self._turn:
            self._turn = list(self.seen)
        reused = []
        for pid in self._turn[-RECHECKED_PER_REFRESH:]:
            reused += self.recheck(pid)
        del self._turn[-RECHECKED_PER_REFRESH:]
        return reused

    def recheck(self, pid: int) -> list[tuple[Seen, Seen]]:
        """Read a process again; returns the old and the new one if the pid is used again."""
        before, after = self.seen.get(pid), read_seen(self._proc, pid)
        if before is None or after is None:
            return []
        if after.start_time_ticks != before.start_time_ticks:
            self.seen[pid] = after
            return [(before, after)]
        before.group, before.session = after.group, after.session
        before.ended, before.stopped = after.ended, after.stopped
        return []
