"""Claims on journals: a journal is claimed while its owner lives, and then undone by the next.

A claim is a lock on the journal's file. The owner takes it and its keeper inherits it, so it ends
exactly when both have ended. A pid could not tell that, since pids are used again.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stallward.actuator.errors import JournalError
from stallward.actuator.journal.disk import Journal
from stallward.actuator.journal.own_entries import Owner
from stallward.actuator.journal.restore import restore_patiently
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.runtime.locks import lock

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
