"""A process's permanent identity, its pid with its start time, and signals to it by pidfd."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path
from typing import Final

from stallward.actuator.errors import KernelFileError
from stallward.actuator.kernel.files import failure, read_bytes

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
