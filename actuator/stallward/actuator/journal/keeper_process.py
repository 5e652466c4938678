"""The keeper's own side: hold entries for one owner, undo them when it dies.

``python -m stallward.actuator.journal.keeper_process FD OWNER PROC CGROUP [JOURNAL]`` serves the
``SOCK_SEQPACKET`` socket ``FD``. It runs beside every sandbox, so it imports little. The claim
on its journal is a descriptor that it inherits and never touches.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
from pathlib import Path
from typing import Final

from stallward.actuator.errors import ActuatorError
from stallward.actuator.journal.disk import Journal
from stallward.actuator.journal.entries import JournalEntry, from_line
from stallward.actuator.journal.restore import restore
from stallward.actuator.kernel.paths import Paths

READY: Final = b"ready"
CLOSE: Final = b"close"
RESTORE: Final = b"restore"
MESSAGE_BYTES: Final = 65536


class _Held:
    """What one keeper holds, in memory and on disk."""

    def __init__(self, paths: Paths, journal: Journal | None) -> None:
        self._paths = paths
        self._journal = journal
        self._entries: dict[JournalEntry, None] = {}

    def take(self, message: bytes) -> None:
        for line in message.decode().splitlines():
            operation, entry = from_line(line)
            if self._journal:
                self._journal.append((entry,), operation)
            if operation == "hold":
                self._entries.setdefault(entry)
            else:
                self._entries.pop(entry, None)

    def restore(self) -> tuple[str, ...]:
        problems = restore(self._entries, self._paths)
        if not problems:
            self._entries.clear()
            if self._journal:
                self._journal.empty()
        return problems

    def end(self) -> None:
        if self._journal:
            self._journal.clear()


def _answer(held: _Held, message: bytes) -> bytes:
    try:
        if message == RESTORE:
            return json.dumps({"problems": [p[:400] for p in held.restore()[:100]]}).encode()
        held.take(message)
    except (ActuatorError, UnicodeDecodeError) as error:
        return b"!" + str(error).encode()
    return b"ok"


def _keep(connection: socket.socket, owner: int, held: _Held) -> bool:
    """Serve until the owner ends; returns whether it closed properly."""
    try:
        owner_fd = os.pidfd_open(owner)
    except OSError:
        return False
    poller = select.poll()
    poller.register(connection, select.POLLIN)
    # A forked child of the owner may hold the socket open; the owner's own end counts too.
    poller.register(owner_fd, select.POLLIN)
    while True:
        ready = {fd for fd, _ in poller.poll()}
        if connection.fileno() in ready:
            message = connection.recv(MESSAGE_BYTES)
            if not message:
                return False
            if message == CLOSE:
                held.end()
                connection.send(b"ok")
                return True
            connection.send(_answer(held, message))
        elif owner_fd in ready:
            return False


def main(arguments: list[str]) -> int:
    """The keeper process; returns its exit status."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    fd, owner, proc, cgroup, *journal_path = arguments
    paths = Paths(proc=Path(proc), cgroup=Path(cgroup))
    connection = socket.socket(fileno=int(fd))
    journal = Journal(Path(journal_path[0]), paths, claimed=True) if journal_path else None
    held = _Held(paths, journal)
    closed = False
    with contextlib.suppress(OSError):
        connection.send(READY)
        closed = _keep(connection, int(owner), held)
    problems = () if closed else held.restore()
    for problem in problems:
        with contextlib.suppress(OSError):
            sys.stderr.write(f"stallward keeper: {problem}\n")
    if not closed and not problems:
        held.end()
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
