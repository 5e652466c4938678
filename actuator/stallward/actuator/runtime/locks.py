"""Locks that keep daemons apart: each is a descriptor, held until its last copy is closed.

A child that inherits the descriptor holds the lock too. So a daemon whose guardian was killed
keeps its locks until its loop has put everything back.
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
"""How long to wait for a predecessor: one that was just killed may take a moment to restore."""
_RETRY_S: Final = 0.05
_NO_ROOM: Final = frozenset({errno.EROFS, errno.ENOSPC, errno.EDQUOT})
_STOP_IT: Final = "Stop it, or give this one other paths."


def lock(fd: int, *, wait_s: float = 0.0) -> bool:
    """Lock an open file for its holders alone; returns whether that was possible in time."""
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
    """Lock ``path``, which is made if need be; returns the descriptor.

    Args:
        path: The file.
        in_use: Says who has it, e.g. ``Another daemon uses the journal.``
        wait_s: How long to wait for a predecessor.

    Raises:
        DaemonError: If somebody else has it, or it cannot be made.
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
    """Claim a daemon's journal; returns the descriptor, -1 if nothing there can be locked.

    The lock is a file beside the journal. On a disk that takes no new file it is that file as
    it is, or else the folder: what is there must be undone even where nothing can be written.

    Raises:
        DaemonError: If another daemon has it, or this user may not.
    """
    path = journal.with_name(f"{journal.name}.lock")
    in_use = f"Another daemon uses {path}."
    try:
        return lock_file(path, in_use, wait_s=wait_s)
    except DaemonError as error:
        number = getattr(error.__cause__, "errno", None)
        if number not in _NO_ROOM:
            raise
    for there in (path, path.parent):
        try:
            fd = os.open(there, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue
        if lock(fd, wait_s=wait_s):
            return fd
        os.close(fd)
        raise DaemonError(in_use, next_step=_STOP_IT)
    return -1


def claim_node(paths: Paths) -> int:
    """Claim the machine's kernel settings for this daemon; returns the descriptor, -1 if none.

    They are the machine's, not a sandbox's: a second daemon would take what this one has tuned
    for the original, and restore that. The lock is on the directory of the settings itself, so
    nothing is left behind and whoever sees the same settings sees the same lock.

    Raises:
        DaemonError: If another daemon has them.
    """
    try:
        fd = os.open(paths.proc / "sys/vm", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:  # nothing to tune here
        return -1
    if not lock(fd, wait_s=WAIT_S):
        os.close(fd)
        raise DaemonError(
            "Another stallward daemon runs on this machine.",
            next_step="Stop it first: both would tune the same kernel settings.",
        )
    return fd
