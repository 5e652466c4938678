"""A keeper: a tiny process that undoes what its owner leaves behind.

The owner sends every entry before the change that it undoes and waits for the answer. When the
owner ends without closing properly, however it dies, the keeper restores everything it holds.
``python -m stallward.actuator.keeper`` is the keeper's side.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final

from stallward.actuator.errors import ActuatorError, JournalError
from stallward.actuator.journal_disk import Journal
from stallward.actuator.journal_entries import JournalEntry, from_line, to_line
from stallward.actuator.journal_restore import restore
from stallward.actuator.paths import Paths

_READY: Final = b"ready"
_CLOSE: Final = b"close"
_RESTORE: Final = b"restore"
_MESSAGE_BYTES: Final = 65536
_TIMEOUT_S: Final = 10.0
_RESTORE_TIMEOUT_S: Final = 60.0


class Keeper:
    """The owner's side; make it with :meth:`start`. Safe to use from several threads."""

    def __init__(self, connection: socket.socket, process: subprocess.Popen[bytes]) -> None:
        self._connection = connection
        self._process = process
        self._lock = threading.Lock()

    @classmethod
    def start(cls, paths: Paths, journal_path: Path | None = None) -> Keeper:
        """Start a keeper for this process.

        Args:
            paths: The kernel's files.
            journal_path: Where the keeper also writes entries to disk, so that a later start
                can undo them after a power cut; ``None`` keeps them in memory only.

        Raises:
            JournalError: If it does not come up.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", __name__, "--keep", str(theirs.fileno())]
        command += ["--owner", str(os.getpid())]
        command += ["--proc", str(paths.proc), "--cgroup", str(paths.cgroup)]
        if journal_path is not None:
            command += ["--journal", str(journal_path)]
        try:
            process = subprocess.Popen(
                command,
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            raise JournalError(f"Cannot start a keeper ({error.strerror}).") from error
        finally:
            theirs.close()
        keeper = cls(ours, process)
        ours.settimeout(_TIMEOUT_S)
        with contextlib.suppress(OSError):
            if ours.recv(_MESSAGE_BYTES) == _READY:
                return keeper
        keeper._end()
        raise JournalError(
            f"The keeper process ended before it was ready (exit status {process.returncode}).",
            next_step="Its message is on standard error.",
        )

    @property
    def pid(self) -> int:
        """The keeper's process."""
        return self._process.pid

    def hold(self, *entries: JournalEntry) -> None:
        """Have ``entries`` undone if this process dies; returns when the keeper has them.

        Raises:
            JournalError: If the keeper is gone or cannot write its journal: change nothing.
        """
        self._ask_lines([to_line(entry) for entry in entries])

    def release(self, *entries: JournalEntry) -> None:
        """Forget ``entries``, which the caller has undone itself.

        Raises:
            JournalError: If the keeper is gone.
        """
        self._ask_lines([to_line(entry, "release") for entry in entries])

    def restore(self) -> tuple[str, ...]:
        """Have everything undone now; the keeper stays and holds nothing afterwards.

        Returns:
            What could not be undone, one sentence each.

        Raises:
            JournalError: If the keeper is gone.
        """
        answer = json.loads(self._ask(_RESTORE, timeout_s=_RESTORE_TIMEOUT_S))
        return tuple(str(problem) for problem in answer["problems"])

    def close(self) -> None:
        """End the keeper without restoring: the caller has undone everything."""
        with contextlib.suppress(JournalError):
            self._ask(_CLOSE)
        self._end()

    def _end(self) -> None:
        self._connection.close()
        try:
            self._process.wait(_RESTORE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _ask_lines(self, lines: list[str]) -> None:
        message = b""
        for line in lines:
            data = line.encode() + b"\n"
            if message and len(message) + len(data) > _MESSAGE_BYTES // 2:
                self._ask(message)
                message = b""
            message += data
        if message:
            self._ask(message)

    def _ask(self, message: bytes, *, timeout_s: float = _TIMEOUT_S) -> bytes:
        try:
            with self._lock:
                self._connection.settimeout(timeout_s)
                self._connection.send(message)
                answer = self._connection.recv(_MESSAGE_BYTES)
        except OSError as error:
            raise JournalError(f"The keeper process is gone ({error}).") from error
        if not answer:
            raise JournalError("The keeper process is gone.")
        if answer.startswith(b"!"):
            raise JournalError(answer[1:].decode("utf-8", "replace"))
        return answer


class _Held:
    """What one keeper holds, in memory and on disk."""

    def __init__(self, paths: Paths, journal: Journal | None) -> None:
        self._paths = paths
        self._journal = journal
        self._entries: list[JournalEntry] = []
        if journal:
            # What a dead predecessor left in the same file is undone before anything is held.
            self._entries += journal.load()
            self.restore()

    def take(self, message: bytes) -> None:
        for line in message.decode().splitlines():
            operation, entry = from_line(line)
            if self._journal:
                self._journal.append((entry,), operation)
            if operation == "hold":
                self._entries.append(entry)
            elif entry in self._entries:
                self._entries.remove(entry)

    def restore(self) -> tuple[str, ...]:
        problems = restore(self._entries, self._paths)
        if not problems:
            self.forget()
        return problems

    def forget(self) -> None:
        self._entries.clear()
        if self._journal:
            self._journal.clear()


def _answer(held: _Held, message: bytes) -> bytes:
    try:
        if message == _RESTORE:
            return json.dumps({"problems": held.restore()}).encode()[:_MESSAGE_BYTES]
        held.take(message)
    except ActuatorError as error:
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
            message = connection.recv(_MESSAGE_BYTES)
            if not message:
                return False
            if message == _CLOSE:
                held.forget()
                connection.send(b"ok")
                return True
            connection.send(_answer(held, message))
        elif owner_fd in ready:
            return False


def main(arguments: list[str] | None = None) -> int:
    """The keeper process; returns its exit status."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    parser = argparse.ArgumentParser(prog="stallward.actuator.keeper", description=__doc__)
    parser.add_argument("--keep", type=int, required=True, metavar="FD")
    parser.add_argument("--owner", type=int, required=True, metavar="PID")
    parser.add_argument("--proc", type=Path, required=True)
    parser.add_argument("--cgroup", type=Path, required=True)
    parser.add_argument("--journal", type=Path)
    options = parser.parse_args(arguments)
    paths = Paths(proc=options.proc, cgroup=options.cgroup)
    journal = Journal(options.journal, paths) if options.journal else None
    connection = socket.socket(fileno=options.keep)
    held = _Held(paths, journal)
    closed = False
    with contextlib.suppress(OSError):
        connection.send(_READY)
        closed = _keep(connection, options.owner, held)
    problems = () if closed else held.restore()
    for problem in problems:
        with contextlib.suppress(OSError):
            sys.stderr.write(f"stallward keeper: {problem}\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
