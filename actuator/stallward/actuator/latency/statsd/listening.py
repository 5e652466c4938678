"""The socket on which StatsD datagrams arrive."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
import struct
from pathlib import Path
from typing import Final, NamedTuple

from stallward.actuator.runtime.addresses import Address
from stallward.actuator.runtime.socket_place import move_aside

DATAGRAM_BYTES: Final = 1 << 14
"""A longer datagram is malformed; clients send 1,432 bytes by UDP, or 8 KiB on one machine."""
_BUFFER_BYTES: Final = 1 << 20
_SO_RXQ_OVFL: Final = 40
"""The socket option by which the kernel reports how many datagrams it dropped (socket(7))."""
_NO_EXECUTE: Final = 0o111
"""The mask with which bind(2) makes a socket that every user may write to."""
_CREDENTIALS: Final = struct.Struct("=iII")
"""Process, user and group of a sender (unix(7))."""


class Datagram(NamedTuple):
    """One datagram, and what the kernel says of it."""

    content: bytes
    whole: bool
    """Whether it was no longer than :data:`DATAGRAM_BYTES`."""
    user: int | None
    """The user who sent it, where that was asked for."""
    dropped: int | None
    """How many datagrams the kernel has dropped so far; ``None`` if it does not say."""


class DatagramSocket:
    """A socket that listens; a socket file that a killed process left is replaced.

    A folder that another user can write may be exchanged for another one at any time. So the
    folder is opened once, what is removed is looked at and removed inside of it, and the mode of
    the socket is given when it is made and never changed by its path.

    Args:
        address: A UDP address, or the path of a Unix datagram socket, to which every user of the
            machine may write unless the permissions of its folder forbid it.
        ask_user: Whether to ask for the user of each datagram; only for a Unix socket.

    Raises:
        OSError: If the address cannot be used.
    """

    def __init__(self, address: Address, *, ask_user: bool = False) -> None:
        self._folder, self._name = -1, ""
        self._identity: tuple[int, int] | None = None
        self._ancillary_bytes = socket.CMSG_SPACE(4)
        self._socket = socket.socket(address.family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
            if address.path:
                self._bind_path(address.path, ask_user=ask_user)
            else:
                with contextlib.suppress(OSError):
                    self._socket.setsockopt(socket.SOL_SOCKET, _SO_RXQ_OVFL, 1)
                self._socket.bind(address.bindable)
        except BaseException:
            self.close()
            raise

    def _bind_path(self, path: str, *, ask_user: bool) -> None:
        # Room for what is asked for and no more: a sender could pass open files otherwise.
        self._ancillary_bytes = socket.CMSG_SPACE(_CREDENTIALS.size) if ask_user else 0
        if ask_user:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        folder = Path(path).parent
        self._name = Path(path).name
        self._folder = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._remove_abandoned(path)
        mask = os.umask(_NO_EXECUTE)
        try:
            self._socket.bind(path)
        finally:
            os.umask(mask)
        self._identity = self._look()
        if self._identity is None:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))

    def _look(self) -> tuple[int, int] | None:
        """Return which socket has the name now; ``None`` if none has."""
        try:
            status = os.stat(self._name, dir_fd=self._folder, follow_symlinks=False)
        except OSError:
            return None
        return (status.st_dev, status.st_ino) if stat.S_ISSOCK(status.st_mode) else None

    def _remove_abandoned(self, path: str) -> None:
        """Remove a socket on which no process listens any more, and what others put there."""
        move_aside(self._name, self._folder)
        found = self._look()
        if found is None:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(path)
            except ConnectionRefusedError:
                self._remove(found)

    def _remove(self, identity: tuple[int, int]) -> None:
        if self._look() == identity:
            with contextlib.suppress(OSError):
                os.unlink(self._name, dir_fd=self._folder)

    @property
    def is_reached(self) -> bool:
        """Whether senders still find it: its name may have been removed or taken by another."""
        return self._identity is None or self._look() == self._identity

    def fileno(self) -> int:
        """The descriptor, for select(2)."""
        return self._socket.fileno()

    def receive(self) -> Datagram | None:
        """Return the next datagram without waiting; ``None`` if there is none."""
        try:
            content, ancillary, flags, _ = self._socket.recvmsg(
                DATAGRAM_BYTES, self._ancillary_bytes
            )
        except OSError:
            return None
        user = dropped = None
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, _SO_RXQ_OVFL) and len(data) >= 4:
                (dropped,) = struct.unpack("=I", data[:4])
            elif (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
                _, user, _ = _CREDENTIALS.unpack(data[: _CREDENTIALS.size])
        return Datagram(content, not flags & socket.MSG_TRUNC, user, dropped)

    def close(self) -> None:
        """Close the socket, and remove its name if that is still ours."""
        self._socket.close()
        if self._folder >= 0:
            if self._identity is not None:
                self._remove(self._identity)
            os.close(self._folder)
            self._folder = -1
