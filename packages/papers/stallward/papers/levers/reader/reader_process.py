"""The process of a reader: reads pages in and marks them as used, in the group that it is moved to.

The daemon starts it as ``python -m stallward.papers.levers.reader.reader_process
OPTIONS``. Each message on its ``SOCK_SEQPACKET`` socket is one call: process_madvise(2) with the
pidfd of the process whose pages are meant, or the marking of cached pages of an open file. It holds
nothing between two calls, so it may be frozen or killed at any time. It ends with the thread that started it, frozen or not.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import struct
import sys
from dataclasses import dataclass
from typing import Final

from stallward.actuator.kernel.memory.mappings import process_madvise
from stallward.actuator.runtime.process_start import run_process
from stallward.papers.levers.mark_used import Marker

READY: Final = b"ready"
HEAD: Final = struct.Struct("=i")
"""The advice or :data:`MARK_USED`, before the ranges of a message."""
MARK_USED: Final = -1
RANGE: Final = struct.Struct("=QQ")
"""Bytes of one range, after its address or its offset in the file."""
ANSWER: Final = struct.Struct("=qi")
"""The bytes advised on, or the pages marked, and the errno of a call that failed, else 0."""
MESSAGE_BYTES: Final = 65536
_PR_SET_PDEATHSIG: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderOptions:
    """What a reader is told at its start."""

    fd: int
    """A socket to the daemon."""
    parent_pid: int
    """The process that started it."""


def _answer(marker: Marker, message: bytes, fd: int) -> bytes:
    (call,) = HEAD.unpack_from(message)
    ranges = [(start, size) for start, size in RANGE.iter_unpack(message[HEAD.size :])]
    try:
        if call == MARK_USED:
            done = sum(marker.mark_used(fd, start, size) for start, size in ranges)
        else:
            done = process_madvise(fd, ranges, call)
        return ANSWER.pack(done, 0)
    except OSError as error:
        return ANSWER.pack(0, error.errno or 0)


def _serve(connection: socket.socket) -> None:
    connection.send(READY)
    marker = Marker()
    while True:
        message, fds, _, _ = socket.recv_fds(connection, MESSAGE_BYTES, 1)
        if not message:
            return
        try:
            answer = _answer(marker, message, *fds)
        finally:
            for fd in fds:
                os.close(fd)
        connection.send(answer)


def main(options: ReaderOptions) -> int:
    """The reader process; returns its exit status."""
    # A frozen process reads no end of file, but SIGKILL ends it.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != options.parent_pid:
        return 0
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the thread that started it blocks them
    connection = socket.socket(fileno=options.fd)
    with contextlib.suppress(ConnectionError):  # the daemon has closed its side
        _serve(connection)
    return 0


if __name__ == "__main__":
    sys.exit(run_process("reader", ReaderOptions, main))
