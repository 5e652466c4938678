"""The files of the sockets on which the service listens."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from stallward.actuator.errors import DaemonError
from stallward.actuator.runtime.locks import runtime_folder, socket_lock
from stallward.actuator.runtime.socket_options import move_aside
from stallward.actuator.runtime.stderr_line import say

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


RETRY_S: Final = 1.0
"""The delay before the next try to listen; it doubles with each that fails."""
MAX_RETRY_S: Final = 60.0


class Listener(ABC):
    """Listens as soon as that is possible: the daemon protects the application without it as well."""

    def __init__(self) -> None:
        self.failures = 0
        """How many tries to listen have failed."""
        self.problem = ""
        """Why it does not listen now; empty if it does."""

    async def keep_trying(self, retry_s: float = RETRY_S) -> None:
        """Start to listen; try again for ever while that fails."""
        while True:
            try:
                await self.start()
            except DaemonError as error:
                self.failures += 1
                again = f"tried {self.failures} times, and again in {retry_s:g} s"
                self.problem = f"{error.cause} ({again})"
                if self.failures == 1:
                    say(f"{error} It is tried again.", "service")
            else:
                self.problem = ""
                return
            await asyncio.sleep(retry_s)
            retry_s = min(retry_s * 2, MAX_RETRY_S)

    @abstractmethod
    async def start(self) -> None:
        """Start to listen.

        Raises:
            DaemonError: If it cannot.
        """
