"""What everything was before its first change, and that the journal has it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from stallward.actuator.errors import JournalError
from stallward.actuator.journal_entries import JournalEntry

SendJournal = Callable[..., None]
"""Takes entries, as many arguments; returns when they are safe; raises to keep the change from
being made."""
ReleaseJournal = Callable[..., None]
"""Takes entries back that there is nothing to undo of any more."""


class Originals:
    """Which entries the journal holds.

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

    @property
    def entries(self) -> tuple[JournalEntry, ...]:
        """Everything covered, in order."""
        return tuple(self._covered)

    def note(self, entry: JournalEntry) -> None:
        """Cover ``entry`` without sending it: the caller hands it to the journal."""
        self._covered.setdefault(entry)

    def ensure(self, entry: JournalEntry) -> None:
        """Have the journal hold ``entry``; call before the change that it undoes."""
        self.ensure_all((entry,))

    def ensure_all(self, entries: Sequence[JournalEntry]) -> None:
        """Have the journal hold ``entries``, all in one message."""
        new = [entry for entry in entries if entry not in self._covered]
        if new:
            self._send(*new)
        for entry in new:
            self.note(entry)

    def uncover(self) -> None:
        """The journal has nothing of what was noted: each is sent before its first change."""
        self._covered.clear()

    def release(self, entry: JournalEntry) -> None:
        """What ``entry`` undoes is undone for good: what others do next is not ours to undo."""
        self.release_all((entry,))

    def release_all(self, entries: Sequence[JournalEntry]) -> None:
        """:meth:`release` of many, in one message."""
        known = [entry for entry in entries if entry in self._covered]
        for entry in known:
            del self._covered[entry]
        if known and self._release is not None:
            with contextlib.suppress(JournalError):  # they are undone once more, at worst
                self._release(*known)
