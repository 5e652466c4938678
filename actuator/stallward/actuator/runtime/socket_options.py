"""Sockets: moving aside what others put in the place of one, and noticing that a network failed."""

from __future__ import annotations

import errno
import os
import stat
from typing import Final

_WRITABLE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


def move_aside(name: str, folder_fd: int) -> None:
    """Rename what is not a socket, if others may have put it there; sockets and nothing stay.

    They may have put something of root's there, by moving it, where they can write to the folder.
    So whose it is says little there, and it is kept under another name.

    Args:
        name: The name of the socket in its folder.
        folder_fd: The folder, which another user who owns it could exchange by its path.

    Raises:
        FileExistsError: If only this user and root can have put it there.
        OSError: If it cannot be renamed.
    """
    try:
        status = os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
    except FileNotFoundError:
        return
    if stat.S_ISSOCK(status.st_mode):
        return
    ours = {0, os.geteuid()}
    folder = os.fstat(folder_fd)
    if (
        status.st_uid in ours
        and folder.st_uid in ours
        and not folder.st_mode & _WRITABLE_BY_OTHERS
    ):
        raise FileExistsError(errno.EEXIST, "There is something that is not a socket")
    aside = f"{name}.{os.urandom(4).hex()}"
    os.rename(name, aside, src_dir_fd=folder_fd, dst_dir_fd=folder_fd)


def keepalive_options(silence_s: float) -> list[tuple[str, int]]:
    """The options of a channel or a server that notices a broken connection.

    The other end is asked for a sign of life after two thirds of the time, and has the last third
    to give it.

    Args:
        silence_s: After how long without a sign of life the connection counts as broken; at least
            0.3 s are taken.
    """
    third_ms = max(round(silence_s * 1000 / 3), 100)
    return [
        ("grpc.keepalive_time_ms", 2 * third_ms),
        ("grpc.keepalive_timeout_ms", third_ms),
        # Newer versions wait a minute for the answer to a ping, whatever the keepalive allows.
        ("grpc.http2.ping_timeout_ms", third_ms),
        # By default only two may follow each other without a message, and watchers send none.
        ("grpc.http2.max_pings_without_data", 0),
    ]
