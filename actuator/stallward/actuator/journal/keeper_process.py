"""The process of a keeper: holds entries for one owner and undoes them when it dies.

The owner starts it as ``python -m stallward.actuator.journal.keeper_process OPTIONS``. It serves
one ``SOCK_SEQPACKET`` socket. It runs beside every sandbox, so it imports little. The claim on its
journal is a descriptor that it inherits and never touches.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stallward.actuator.errors import ActuatorError, JournalError
from stallward.actuator.journal.disk import Journal
from stallward.actuator.journal.entries import JournalEntry, from_line
from stallward.actuator.journal.own_entries import Owner, refusal
from stallward.actuator.journal.restore import Unrestored, restore_patiently
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.runtime.process_start import run_process
from stallward.actuator.runtime.stderr_line import say

READY: Final = b"ready"
CLOSE: Final = b"close"
RESTORE: Final = b"restore"
MESSAGE_BYTES: Final = 65536
_PATIENCE_S: Final = 30.0
"""How long a keeper whose owner has ended tries again what it cannot undo."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperOptions:
    """What a keeper is told at its start."""

    fd: int
    """A socket to the owner."""
    owner_pid: int
    paths: Paths
    """The kernel's files."""
    journal: Path | None = None
    """Where entries are also written to disk; ``None`` for nowhere."""


class HeldEntries:
    """The entries that one keeper holds, in memory and on disk."""

    def __init__(self, paths: Paths, journal: Journal | None) -> None:
        self._paths = paths
        self._journal = journal
        self._entries: dict[JournalEntry, None] = {}

    def answer(self, message: bytes) -> bytes:
        """Do what the owner asks for; the reply begins with ``!`` if that cannot be done."""
        try:
            if message == RESTORE:
                return json.dumps(
                    {"problems": [str(p)[:400] for p in self.restore()[:100]]}
                ).encode()
            self._take(message)
        except (ActuatorError, UnicodeDecodeError) as error:
            return b"!" + str(error).encode()
        return b"ok"

    def _take(self, message: bytes) -> None:
        for line in message.decode().splitlines():
            operation, entry = from_line(line)
            if why := refusal(entry, self._paths, Owner.SANDBOX):
                raise JournalError(why)
            if self._journal:
                self._journal.append((entry,), operation)
            if operation == "hold":
                self._entries.setdefault(entry)
            else:
                self._entries.pop(entry, None)

    def restore(self, *, patience_s: float = 0.0) -> tuple[Unrestored, ...]:
        """Undo what is held; returns what could not be undone.

        Args:
            patience_s: How long what fails is tried again.
        """
        problems = restore_patiently(
            lambda: self._entries, self._paths, Owner.SANDBOX, patience_s=patience_s
        )
        if not problems:
            self._entries.clear()
            if self._journal:
                self._journal.empty()
        return problems

    def end(self) -> None:
        """Remove the journal: nothing is held any more."""
        if self._journal:
            self._journal.clear()


def _keep(connection: socket.socket, owner: int, held: HeldEntries) -> bool:
    """Serve until the owner ends; returns whether it closed properly."""
    try:
        owner_fd = os.pidfd_open(owner)
    except OSError:
        return False
    poller = select.poll()
    poller.register(connection, select.POLLIN)
    # A forked child of the owner may hold the socket open, so watch for the owner's end, too.
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
            connection.send(held.answer(message))
        elif owner_fd in ready:
            return False


def main(options: KeeperOptions) -> int:
    """The keeper process; returns its exit status."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    connection = socket.socket(fileno=options.fd)
    paths, path = options.paths, options.journal
    held = HeldEntries(paths, None if path is None else Journal(path, paths, claimed=True))
    closed = False
    with contextlib.suppress(OSError):
        connection.send(READY)
        closed = _keep(connection, options.owner_pid, held)
    problems = () if closed else held.restore(patience_s=_PATIENCE_S)
    for problem in problems:
        say(f"{problem}", "keeper")
    if not closed and not problems:
        held.end()
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(run_process("keeper", KeeperOptions, main))
