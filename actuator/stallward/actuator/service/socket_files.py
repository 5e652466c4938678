"""The files of the sockets on which the service listens."""

from __future__ import annotations

import contextlib
import grp
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from stallward.actuator.errors import DaemonError
from stallward.actuator.runtime.locks import lock_file

_LOCK_WAIT_S: Final = 5.0


@contextlib.contextmanager
def socket_mode(mode: int) -> Iterator[None]:
    """Give sockets that are bound within this mode from the start.

    A mode that is set afterwards, by path, would be that of whatever has been put there meanwhile.
    """
    before = os.umask(0o777 & ~mode)
    try:
        yield
    finally:
        os.umask(before)


def claim_socket(path: Path) -> int:
    """Lock the socket's name, so that no other daemon takes it; return the lock's descriptor.

    Raises:
        DaemonError: If another daemon serves there, or the folder is not writable.
    """
    lock = path.with_name(f"{path.name}.lock")
    fd = lock_file(lock, f"Another daemon serves {path}.", wait_s=_LOCK_WAIT_S)
    try:
        make_room(path)
    except OSError as error:
        os.close(fd)
        why = "is not a socket" if isinstance(error, FileExistsError) else f"{error.strerror}"
        raise DaemonError(f"{path} {why}.", next_step="Choose another path.") from error
    return fd


def make_room(path: Path) -> None:
    """Remove a socket that a dead service left; a lock of the service excludes a living one.

    What another user has put there instead is moved aside, so that he cannot keep the service
    from starting.

    Raises:
        FileExistsError: If something else of this user or of root is there.
        OSError: If it cannot be removed.
    """
    try:
        status = path.lstat()
    except FileNotFoundError:
        return
    if stat.S_ISSOCK(status.st_mode):
        path.unlink()
    elif status.st_uid in {0, os.geteuid()}:
        raise FileExistsError(17, "not a socket")
    else:
        path.rename(path.with_name(f"{path.name}.{os.urandom(4).hex()}"))


def group_id(group: str, key: str) -> int:
    """Return the number of a group.

    Args:
        group: Its name or number.
        key: The key of the configuration that names it, for messages.

    Raises:
        DaemonError: If there is no such group.
    """
    if group.isascii() and group.isdigit():
        return int(group)
    try:
        return grp.getgrnam(group).gr_gid
    except (KeyError, ValueError) as error:
        raise DaemonError(
            f"There is no group {group!r} on this machine.",
            next_step=f"Correct `{key}` in the configuration, or give the number.",
        ) from error


def give_to_group(path: Path, gid: int) -> None:
    """Give a socket of this user to a group.

    Raises:
        OSError: If it is no socket of this user any more, or that is not permitted.
    """
    fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(fd)
        if not stat.S_ISSOCK(status.st_mode) or status.st_uid != os.geteuid():
            raise FileExistsError(17, "not the service's socket")
        if status.st_gid != gid:
            os.chown(f"/proc/self/fd/{fd}", -1, gid)  # this very socket, whatever the path is now
    finally:
        os.close(fd)
