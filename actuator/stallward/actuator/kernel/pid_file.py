"""A pid file, which names the root of a process tree and may belong to somebody else.

Whoever can write the file decides what is paused or protected. So a user's file names only that
user's processes, and a file that further users can write names none. It may also be no file at
all: opening a named pipe would wait for ever, and /dev/zero has no end.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

from stallward.actuator.errors import KernelFileError
from stallward.actuator.kernel.process_identity import start_time_ticks, user_ids
from stallward.agent.desired import ProcessRef

_MOST_BYTES: Final = 64
"""More is not read; some services write further lines below the pid."""
_MOST_DIGITS: Final = 10
_ABSENT: Final = frozenset({errno.ENOENT, errno.ENOTDIR})
_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY


class _RefusedError(Exception):
    """Says why a pid file is not followed."""


class PidFile:
    """The pid file of one tree.

    The pid is looked up only when the file changes: if the pid is later used by another process,
    that process is not taken for the root.
    """

    def __init__(self, tree: int, path: Path) -> None:
        self.tree = tree
        self.path = path
        self.fault = ""
        """Why the file cannot be used; empty if it can, or is not there."""
        self._read: tuple[int, int, int] | None = None

    def look(self, proc: Path) -> ProcessRef | None:
        """Return the process that the file names, if it is there and the file has changed."""
        try:
            ref = self._look(proc)
        except _RefusedError as error:
            self.fault = f"{self.path} {error}"
            return None
        self.fault = ""
        return ref

    def _look(self, proc: Path) -> ProcessRef | None:
        try:
            fd = os.open(self.path, _FLAGS)
        except OSError as error:
            if error.errno in _ABSENT:
                return None
            link = error.errno == errno.ELOOP
            why = "is a symbolic link" if link else f"cannot be opened ({error.strerror})"
            raise _RefusedError(why) from error
        try:
            status = os.fstat(fd)
            mark = (status.st_mtime_ns, status.st_ino, status.st_size)
            if mark == self._read:
                return None
            if not stat.S_ISREG(status.st_mode):
                raise _RefusedError("is not a file")
            pid = parse_pid(os.read(fd, _MOST_BYTES))
        except OSError as error:
            raise _RefusedError(f"cannot be read ({error.strerror})") from error
        finally:
            os.close(fd)
        if pid is None:
            return None  # it is just being written
        ref = _named(proc, pid, status)
        if ref is not None:
            self._read = mark
        return ref


def parse_pid(content: bytes) -> int | None:
    """Parse the pid at the beginning of a pid file; ``None`` if there is none."""
    words = content.split(None, 1)
    if not words or not words[0].isdigit() or len(words[0]) > _MOST_DIGITS:
        return None
    return int(words[0])


def _named(proc: Path, pid: int, status: os.stat_result) -> ProcessRef | None:
    """Return a process, if it is there and whoever can write the file may name it."""
    try:
        ticks = start_time_ticks(proc, pid)
        users = user_ids(proc, pid)
        if ticks is None or ticks != start_time_ticks(proc, pid):
            return None
    except KernelFileError:
        return None
    owner = status.st_uid
    may_name_all = owner in {0, os.geteuid()}
    if not may_name_all and users != frozenset({owner}):
        raise _RefusedError(f"is user {owner}'s and names process {pid} of another user")
    if status.st_mode & stat.S_IWOTH:
        raise _RefusedError("can be written by every user")
    if status.st_mode & stat.S_IWGRP and status.st_gid != 0 and may_name_all:
        raise _RefusedError(f"can be written by group {status.st_gid}")
    return ProcessRef(pid=pid, start_time_ticks=ticks)
