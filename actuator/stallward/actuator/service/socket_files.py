"""The files of the sockets on which the service listens."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from stallward.actuator.errors import DaemonError
from stallward.actuator.runtime.locks import runtime_folder, socket_lock
from stallward.actuator.runtime.socket_place import move_aside

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


@contextlib.contextmanager
def claimed_socket(path: Path) -> Iterator[None]:
    """Keep other daemons from a socket's name until the block ends; the socket goes with it.

    Raises:
        DaemonError: If another daemon serves there, or the folder is not writable.
    """
    runtime = runtime_folder(os.geteuid(), os.environ)
    with socket_lock(path, runtime=runtime, wait_s=_LOCK_WAIT_S):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            make_room(path)
        except OSError as error:
            raise DaemonError(
                f"{path} cannot be served: {error.strerror}.", next_step="Choose another path."
            ) from error
        yield
        with contextlib.suppress(OSError):
            path.unlink()


def make_room(path: Path) -> None:
    """Remove a socket that a dead service left; a lock of the service excludes a living one.

    What others have put there instead is moved aside, so that they cannot keep the service from
    starting.

    Raises:
        FileExistsError: If something else is there, and only this user and root can have put it.
        OSError: If it cannot be removed.
    """
    folder_fd = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        move_aside(path.name, folder_fd)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path.name, dir_fd=folder_fd)
    finally:
        os.close(folder_fd)


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
