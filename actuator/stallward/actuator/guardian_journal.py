"""What the guardian holds for the loop: entries in memory first, on disk beside it.

A disk under pressure can take seconds to sync. The guardian must restore within one, so a
thread of its own writes the file; originals are acknowledged when they are on disk, what the
loop notes while ticking (stopped processes) when the guardian has it in memory.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from stallward.actuator.errors import ActuatorError, JournalError
from stallward.actuator.journal_disk import Journal
from stallward.actuator.journal_entries import (
    FileValue,
    Frozen,
    JournalEntry,
    Operation,
    OwnedGroup,
    SwapFile,
    from_line,
)
from stallward.actuator.journal_restore import restore
from stallward.actuator.paths import Paths

_LASTING = (FileValue, Frozen, OwnedGroup, SwapFile)
_COMPACT_AFTER: Final = 200
"""Released entries after which the file is written anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    entries: tuple[JournalEntry, ...] = ()
    operation: Operation = "hold"
    done: Callable[[bytes], None] | None = None
    replace: tuple[JournalEntry, ...] | None = None
    """What the file is to hold instead of all that it does."""


class HeldJournal:
    """The entries in force, in memory and on disk.

    Args:
        journal: The file.
        paths: The kernel's files.
    """

    def __init__(self, journal: Journal, paths: Paths) -> None:
        self._journal = journal
        self._paths = paths
        self._entries: dict[JournalEntry, None] = {}
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._unfinished = False
        self._released = 0
        self._writer = threading.Thread(target=self._write, name="journal", daemon=True)
        self._writer.start()

    @property
    def entries(self) -> tuple[JournalEntry, ...]:
        """What is held, in order."""
        return tuple(self._entries)

    def recover(self) -> tuple[JournalEntry, ...]:
        """Undo what a dead predecessor left on disk; returns what that was.

        Raises:
            JournalError: If the file cannot be read, or something cannot be undone.
        """
        left = self._journal.load()
        self._entries.update(dict.fromkeys(left))
        problems = self.restore(forget=False)
        if problems:  # what could not be undone stays in the file
            raise JournalError(
                f"Settings that an earlier daemon left behind cannot be undone: {problems[0]}",
                next_step=f"Undo what {self._journal.path} lists by hand, then remove it.",
            )
        self._entries.clear()
        self._journal.clear()
        return left

    def take(self, message: bytes, done: Callable[[bytes], None]) -> None:
        """Hold or release the entries of ``message``; ``done`` gets the acknowledgement.

        ``done`` may be called from another thread.
        """
        try:
            lines = [from_line(line) for line in message.decode().splitlines()]
        except (ActuatorError, UnicodeDecodeError) as error:
            done(b"!" + str(error).encode())
            return
        self._release(tuple(entry for operation, entry in lines if operation == "release"))
        entries = tuple(entry for operation, entry in lines if operation == "hold")
        self._entries.update(dict.fromkeys(entries))
        if any(isinstance(entry, _LASTING) for entry in entries):
            self._jobs.put(_Job(entries=entries, done=done))
            return
        done(b"ok")
        if entries:
            self._jobs.put(_Job(entries=entries))

    def _release(self, entries: tuple[JournalEntry, ...]) -> None:
        for entry in entries:
            self._entries.pop(entry, None)
        if not entries:
            return
        self._released += len(entries)
        if self._released < _COMPACT_AFTER:
            self._jobs.put(_Job(entries=entries, operation="release"))
        else:  # the file must not grow for ever with what comes and goes
            self._released = 0
            self._jobs.put(_Job(replace=self.entries))

    def restore(self, *, forget: bool = True) -> tuple[str, ...]:
        """Undo everything now; what cannot be undone stays held and is returned as problems.

        Args:
            forget: Whether nothing is held afterwards; not while the loop may still be alive.
        """
        problems = restore(self._entries, self._paths)
        self._unfinished = bool(problems)
        if forget:
            self.forget()
        return problems

    def forget(self) -> None:
        """Hold nothing any more: the loop has put back what it changed.

        What an earlier restore could not undo stays held.
        """
        if self._entries and not self._unfinished:
            self._entries.clear()
            self._jobs.put(_Job(replace=()))

    def close(self) -> None:
        """Wait for the disk and end the thread."""
        self._jobs.put(None)
        self._writer.join()
        self._journal.close()

    def _write(self) -> None:
        while (job := self._jobs.get()) is not None:
            answer = b"ok"
            try:
                if job.replace is not None:
                    self._journal.replace(job.replace)
                else:
                    self._journal.append(job.entries, job.operation)
            except (ActuatorError, OSError) as error:
                answer = b"!" + str(error).encode()
                os.write(2, b"stallward guardian: " + answer[1:] + b"\n")
            if job.done is not None:
                job.done(answer)
