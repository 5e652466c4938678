"""What everything was before its first change, and that the journal has it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from stallward.actuator.errors import JournalError, KernelFileError, LeverError
from stallward.actuator.journal_entries import FileValue, JournalEntry
from stallward.actuator.kernelfile import read_text

SendJournal = Callable[[JournalEntry], None]
"""Returns when the entry is safe; raises to keep the change from being made."""
ReleaseJournal = Callable[[JournalEntry], None]
"""Takes an entry back that there is nothing to undo of any more."""


class Originals:
    """Original values by file, and which entries the journal holds.

    Args:
        send_journal: Takes an entry that is not covered yet, before the change.
        release_journal: Takes back an entry that was sent.
    """

    def __init__(
        self, send_journal: SendJournal, release_journal: ReleaseJournal | None = None
    ) -> None:
        self._send = send_journal
        self._release = release_journal
        self._covered: dict[JournalEntry, None] = {}
        self._values: dict[Path, str] = {}

    @property
    def entries(self) -> tuple[JournalEntry, ...]:
        """Everything covered, in order."""
        return tuple(self._covered)

    def note(self, entry: JournalEntry) -> None:
        """Cover ``entry`` without sending it: the caller hands it to the journal."""
        self._covered.setdefault(entry)
        if isinstance(entry, FileValue):
            self._values.setdefault(entry.path, entry.value)

    def note_file(self, path: Path) -> None:
        """Cover the present value of ``path``; nothing if it is not there."""
        try:
            value = read_text(path)
        except KernelFileError:
            return  # a file that only root may read: not ours to change either
        if value is not None:
            self.note(FileValue(path, value))

    def ensure(self, entry: JournalEntry) -> None:
        """Have the journal hold ``entry``; call before the change that it undoes."""
        if entry not in self._covered:
            self._send(entry)
            self.note(entry)

    def uncover(self) -> None:
        """The journal has nothing of what was noted: each is sent before its first change."""
        self._covered.clear()

    def release(self, entry: JournalEntry) -> None:
        """What ``entry`` undoes is undone for good: what others do next is not ours to undo."""
        if entry not in self._covered:
            return
        del self._covered[entry]
        if self._release is not None:
            with contextlib.suppress(JournalError):  # it is undone once more, at worst
                self._release(entry)

    def ensure_file(self, path: Path) -> str:
        """The original value of ``path``, safe in the journal.

        Raises:
            LeverError: If the file is not there.
            KernelFileError: If it cannot be read.
        """
        if path not in self._values:
            value = read_text(path)
            if value is None:
                raise LeverError(f"{path} is not there.")
            self.ensure(FileValue(path, value))
        self.ensure(FileValue(path, self._values[path]))
        return self._values[path]

    def forget(self, path: Path) -> None:
        """Somebody else has set ``path`` for good: its value then is the next original."""
        self._values.pop(path, None)

    def value(self, path: Path) -> str | None:
        """The original value of ``path`` if it is known."""
        return self._values.get(path)
