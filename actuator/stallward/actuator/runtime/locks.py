"""Locks that keep two daemons from using the same journal or the same kernel settings.

A lock is a descriptor and is held until its last copy is closed. A child that inherits the
descriptor holds the lock, too: a daemon whose guardian was killed keeps its locks until its loop
has put everything back.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from pathlib import Path
from typing import Final

from stallward.actuator.errors import DaemonError
from stallward.actuator.kernel.paths import Paths

WAIT_S: Final = 2.0
"""How long to wait for an earlier daemon, which may still be restoring after it was killed."""
_RETRY_S: Final = 0.05
_READ_ONLY_OR_FULL: Final = frozenset({errno.EROFS, errno.ENOSPC, errno.EDQUOT})
_STOP_IT: Final = "Stop it, or give this one other paths."


def lock(fd: int, *, wait_s: float = 0.0) -> bool:
    """Lock an open file exclusively; return whether that was possible in time."""
    deadline_s = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline_s:
                return False
            time.sleep(_RETRY_S)
        else:
            return True


def lock_file(path: Path, in_use: str, *, wait_s: float = WAIT_S) -> int:
    """Lock the file ``path``, and create it if need be; return the descriptor.

    Args:
        path: The file.
        in_use: The message if it is locked, e.g. ``Another daemon uses the journal.``
        wait_s: How long to wait for an earlier daemon.

    Raises:
        DaemonError: If another process holds the lock, or the file cannot be created.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise DaemonError(f"{path} cannot be locked: {error.strerror}.") from error
    if not lock(fd, wait_s=wait_s):
        os.close(fd)
        raise DaemonError(in_use, next_step=_STOP_IT)
    return fd


def claim_journal_path(journal: Path, *, wait_s: float = WAIT_S) -> int:
    """Lock a daemon's journal; return the descriptor, or -1 if nothing there can be locked.

    The lock is on a file beside the journal. On a disk that is full or read-only it is on that
    file as it is, or else on the folder, because a journal must be undone even where nothing can
    be written.

    Raises:
        DaemonError: If another daemon holds the lock, or this user lacks the permission.
    """
    path = journal.with_name(f"{journal.name}.lock")
    in_use = f"Another daemon uses {path}."
    try:
        return lock_file(path, in_use, wait_s=wait_s)
    except DaemonError as error:
        number = getattr(error.__cause__, "errno", None)
        if number not in _READ_ONLY_OR_FULL:
            raise
    for target in (path, path.parent):
        try:
            fd = os.open(target, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue
        if lock(fd, wait_s=wait_s):
            return fd
        os.close(fd)
        raise DaemonError(in_use, next_step=_STOP_IT)
    return -1


def claim_node(paths: Paths) -> int:
    """Lock the machine's kernel settings for this daemon; return the descriptor, or -1 if none.

    There is one set of them on a machine, also where a daemon runs in a sandbox. A second daemon
    would take the values of the first for the originals, and restore those. The lock is on the
    directory of the settings itself, so that no file is left behind, and every process that sees
    the same settings sees the same lock.

    Raises:
        DaemonError: If another daemon holds the lock.
    """
    try:
        fd = os.open(paths.proc / "sys/vm", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:  # there are no settings to tune
        return -1
    if not lock(fd, wait_s=WAIT_S):
        os.close(fd)
        raise DaemonError(
            "Another stallward daemon runs on this machine.",
            next_step="Stop it first: both would tune the same kernel settings.",
        )
    return fd
