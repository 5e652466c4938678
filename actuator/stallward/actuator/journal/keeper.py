"""A keeper: a tiny process that undoes the changes of its owner when the owner dies.

The owner sends every entry before the change that it undoes, and waits for the answer. When the
owner ends without closing the keeper, for whatever reason, the keeper undoes all its entries.
A journal on disk covers the death of both, too: the next keeper that is started with the same
folder restores first. :mod:`stallward.actuator.journal.keeper_process` is the keeper's side.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stallward.actuator.errors import JournalError
from stallward.actuator.journal.disk import Journal
from stallward.actuator.journal.entries import JournalEntry, to_line
from stallward.actuator.journal.keeper_process import (
    CLOSE,
    MESSAGE_BYTES,
    READY,
    RESTORE,
    KeeperOptions,
)
from stallward.actuator.journal.own_entries import Owner
from stallward.actuator.journal.restore import restore_patiently
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.runtime.locks import lock
from stallward.actuator.runtime.process_start import command_line

# ---------- Claims on journals: a journal is claimed while its owner lives, and then undone by the next
# A claim is a lock on the journal's file. The owner takes it and its keeper inherits it, so it ends
# exactly when both have ended. A pid could not tell that, since pids are used again.

_SUFFIX: Final = ".journal"
_TRIES: Final = 20
_PATIENCE_S: Final = 5.0
"""How long what a killed process left behind is tried to be undone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalClaim:
    """A journal file that belongs to this process."""

    path: Path
    """The file."""
    fd: int
    """While any process has this descriptor open, no other process undoes the journal."""

    def drop(self) -> None:
        """Remove the file and release the claim; everything in the journal must be undone."""
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)
        os.close(self.fd)


def claim_journal(folder: Path) -> JournalClaim:
    """Make a new, empty journal in ``folder``.

    Raises:
        JournalError: If the file cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for _ in range(_TRIES):
            path = folder / f"{os.getpid()}-{os.urandom(4).hex()}{_SUFFIX}"
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            if lock(fd) and path.exists():
                return JournalClaim(path=path, fd=fd)
            os.close(fd)  # another process that was cleaning up took it for abandoned
    except OSError as error:
        raise JournalError(
            f"Cannot make a journal in {folder} ({error.strerror}).",
            next_step="Give a folder on a disk with free space that you may write to.",
        ) from error
    raise JournalError(f"Cannot keep a journal in {folder}: other processes remove it at once.")


def undo_abandoned(folder: Path, paths: Paths) -> None:
    """Undo the journals in ``folder`` whose owners and keepers have ended.

    Raises:
        JournalError: If something cannot be undone; that journal stays.
    """
    for path in sorted(folder.glob(f"*{_SUFFIX}")):
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise JournalError(f"Cannot open {path} ({error.strerror}).") from error
        try:
            if lock(fd):
                _undo(path, paths)
        finally:
            os.close(fd)


def _undo(path: Path, paths: Paths) -> None:
    journal = Journal(path, paths)
    problems = restore_patiently(journal.load, paths, Owner.SANDBOX, patience_s=_PATIENCE_S)
    if problems:
        raise JournalError(
            f"What a killed process left behind cannot be undone: {problems[0]}",
            next_step=f"Undo what {path} lists by hand, then remove it.",
        )
    journal.clear()


_MODULE: Final = "stallward.actuator.journal.keeper_process"
_START_S: Final = 60.0
"""How long a keeper may take to start: on a slow machine, or under pressure, Python needs many
seconds. A keeper that ends is noticed at once, so this bounds only one that hangs."""
_TIMEOUT_S: Final = 30.0
"""How long an answer may take. An entry for what survives a power cut, such as a swap file, is
synced to the disk first."""
_RESTORE_TIMEOUT_S: Final = 60.0


class Keeper:
    """The owner's side; make it with :meth:`start`. Safe to use from several threads."""

    def __init__(
        self,
        connection: socket.socket,
        process: subprocess.Popen[bytes],
        claim: JournalClaim | None,
    ) -> None:
        self._connection = connection
        self._process = process
        self._claim = claim
        self._lock = threading.Lock()
        self._unanswered = 0
        """Messages whose answers are late; those answers come before the next message's."""

    @classmethod
    def start(cls, paths: Paths, journal_dir: Path | None = None) -> Keeper:
        """Start a keeper for this process.

        Args:
            paths: The kernel's files.
            journal_dir: The folder of a journal on disk, in case the keeper dies with its owner.
                Abandoned journals there are undone first. ``None`` keeps entries in memory only.

        Raises:
            JournalError: If it does not start, or an abandoned journal cannot be undone.
        """
        claim = None
        if journal_dir is not None:
            undo_abandoned(journal_dir, paths)
            claim = claim_journal(journal_dir)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        options = KeeperOptions(
            fd=theirs.fileno(),
            owner_pid=os.getpid(),
            paths=paths,
            journal=None if claim is None else claim.path.absolute(),
        )
        try:
            process = subprocess.Popen(
                command_line(_MODULE, options),
                pass_fds=(theirs.fileno(), *(() if claim is None else (claim.fd,))),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            if claim is not None:
                claim.drop()
            raise JournalError(f"Cannot start a keeper ({error.strerror}).") from error
        finally:
            theirs.close()
        keeper = cls(ours, process, claim)
        why = "ended before it was ready"
        ours.settimeout(_START_S)
        try:
            if ours.recv(MESSAGE_BYTES) == READY:
                return keeper
        except TimeoutError:
            why = f"was not ready after {_START_S:g} s"
            process.kill()
        except OSError:  # it ended with something unread
            pass
        keeper.close()
        raise JournalError(
            f"The keeper process {why} (exit status {process.returncode}).",
            next_step="Its message is on standard error.",
        )

    @property
    def pid(self) -> int:
        """The pid of the keeper's process."""
        return self._process.pid

    def hold(self, *entries: JournalEntry) -> None:
        """Have ``entries`` undone if this process dies; returns when the keeper has them.

        Raises:
            JournalError: If the keeper is gone or cannot write its journal. The caller must then
                change nothing.
        """
        self._ask_lines([to_line(entry) for entry in entries])

    def release(self, *entries: JournalEntry) -> None:
        """Forget ``entries``, which the caller has undone itself.

        Raises:
            JournalError: If the keeper is gone.
        """
        self._ask_lines([to_line(entry, "release") for entry in entries])

    def restore(self) -> tuple[str, ...]:
        """Have everything undone now; the keeper runs on and holds nothing afterwards.

        Returns:
            One sentence for each entry that could not be undone.

        Raises:
            JournalError: If the keeper is gone.
        """
        answer = json.loads(self._ask(RESTORE, timeout_s=_RESTORE_TIMEOUT_S))
        return tuple(str(problem) for problem in answer["problems"])

    def close(self) -> None:
        """End the keeper without a restore, since the caller has undone everything."""
        with contextlib.suppress(JournalError):
            self._ask(CLOSE)
        self._connection.close()
        try:
            self._process.wait(_RESTORE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._claim is not None:
            self._claim.drop()
            self._claim = None

    def _ask_lines(self, lines: list[str]) -> None:
        message = b""
        for line in lines:
            data = line.encode() + b"\n"
            if message and len(message) + len(data) > MESSAGE_BYTES // 2:
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
                self._unanswered += 1
                answer = b"late"
                while answer and self._unanswered:
                    answer = self._connection.recv(MESSAGE_BYTES)
                    self._unanswered -= 1
        except TimeoutError as error:
            raise JournalError(
                f"The keeper process did not answer within {timeout_s:g} s."
            ) from error
        except OSError as error:
            raise JournalError(f"The keeper process is gone ({error}).") from error
        if not answer:
            raise JournalError("The keeper process is gone.")
        if answer.startswith(b"!"):
            raise JournalError(answer[1:].decode("utf-8", "replace"))
        return answer
