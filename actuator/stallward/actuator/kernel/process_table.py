"""All processes of the machine, kept up to date a few at a time.

Listing /proc costs about 0.5 ms for a thousand processes; reading the stat of each would cost
ten. So only new processes are read, and a few of the rest in turn, which shows a pid that is used
again. Nothing here waits: listing and stat take no lock that a starved process may hold. Reading
a command line does, and is done elsewhere.
"""

from __future__ import annotations

import errno
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stallward.actuator.errors import KernelFileError
from stallward.actuator.kernel.files import failure, read_bytes
from stallward.agent.desired import ProcessRef

_NO_PROCESS: Final = frozenset({errno.ESRCH, errno.EINVAL})
"""Errors of opening a pidfd where no process has that number (EINVAL: it is that of a thread)."""


def stat_fields(
    content: bytes, path: Path | str, error: type[KernelFileError] = KernelFileError
) -> list[bytes]:
    """Split /proc/PID/stat into its fields, from field 3 (state) on.

    The name (field 2) may hold spaces, parentheses and newlines; only the last ``)`` ends it.

    Raises:
        KernelFileError: (or the class given) if the content is cut short or not of this form.
    """
    fields = content[content.rfind(b")") + 1 :].split()
    if b")" not in content or len(fields) < 22 or not _is_count(fields[19]):
        raise error(path, f"not a process's stat: {content[:80]!r}")
    return fields


def _is_count(value: bytes) -> bool:
    """Whether ``value`` is a number of at most 64 bits."""
    return value.isdigit() and len(value) < 20


def start_time_ticks(proc: Path, pid: int) -> int | None:
    """Read field 22 of /proc/PID/stat; ``None`` if there is no such process.

    Raises:
        KernelFileError: If the file cannot be understood.
    """
    path = proc / str(pid) / "stat"
    content = read_bytes(path)
    return None if not content else int(stat_fields(content, path)[19])


def user_ids(proc: Path, pid: int) -> frozenset[int] | None:
    """Read the users a process runs as: real, effective, saved and for files; mostly one.

    The owner of /proc/PID says less: it is root for every process that may not be dumped, and any
    program can make itself such a one.

    Returns:
        The users; ``None`` if there is no such process, or its status cannot be understood.

    Raises:
        KernelFileError: If the status is there but cannot be read.
    """
    return parse_user_ids(read_bytes(proc / str(pid) / "status") or b"")


def parse_user_ids(content: bytes) -> frozenset[int] | None:
    """Parse the users in a /proc/PID/status; ``None`` if they are not there.

    A name before them holds no newline: the kernel escapes those.
    """
    words = content.partition(b"\nUid:")[2].partition(b"\n")[0].split()
    if len(words) != 4 or not all(map(_is_count, words)):
        return None
    return frozenset(map(int, words))


def why_no_pidfd() -> str:
    """Say why processes cannot be signalled by pidfd; empty if they can. It sends no signal."""
    try:
        fd = os.pidfd_open(os.getpid())
        try:
            signal.pidfd_send_signal(fd, 0)
        finally:
            os.close(fd)
    except OSError as error:
        return f"no signals by pidfd ({os.strerror(error.errno or 0)})"
    except AttributeError:
        return "no signals by pidfd (this Python was built without them)"
    return ""


def open_process(proc: Path, pid: int, expected_ticks: int) -> int | None:
    """Open a descriptor of the process that started at ``expected_ticks``, and of no other.

    Returns:
        A pidfd, which the caller closes; ``None`` if that process has ended.

    Raises:
        KernelFileError: If there is no descriptor left, or its start time cannot be read.
    """
    try:
        fd = os.pidfd_open(pid)
    except OSError as error:
        if error.errno in _NO_PROCESS:
            return None
        raise failure(proc / str(pid), error, "open a descriptor of the process") from error
    try:
        # The descriptor pins one process; the start time says whether it is the one meant.
        if start_time_ticks(proc, pid) == expected_ticks:
            return fd
    except BaseException:
        os.close(fd)
        raise
    os.close(fd)
    return None


def signal_process(fd: int, proc: Path, pid: int, number: signal.Signals) -> bool:
    """Signal the process of a pidfd.

    Returns:
        Whether that process was still there.

    Raises:
        KernelFileError: If the signal is refused.
    """
    try:
        signal.pidfd_send_signal(fd, number)
    except ProcessLookupError:
        return False
    except OSError as error:
        raise failure(proc / str(pid), error, f"send {number.name}") from error
    return True


def send_signal(proc: Path, pid: int, expected_ticks: int, number: signal.Signals) -> bool:
    """Signal the process that started at ``expected_ticks``; a recycled pid is never hit.

    Returns:
        Whether that process was still there.

    Raises:
        KernelFileError: If the signal is refused, or no descriptor is left to send it by.
    """
    fd = open_process(proc, pid, expected_ticks)
    if fd is None:
        return False
    try:
        return signal_process(fd, proc, pid, number)
    finally:
        os.close(fd)


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
