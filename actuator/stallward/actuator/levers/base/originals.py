"""What everything was before its first change, that the journal has it, and what is moved now.

Most originals are in the journal before anything is moved, so that moving costs no wait. Only
those that are touched are undone after a crash: what somebody else makes of a setting that was
never moved, or was put back, is theirs. So each is touched before it is moved, never after, and
settled once it is known to be back, never before.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

from stallward.actuator.errors import JournalError
from stallward.actuator.journal.entries import FileValue, JournalEntry, KeyedValue

SendJournal = Callable[..., None]
"""Takes entries, as many arguments; returns when they are safe; raises to keep the change from
being made."""
ReleaseJournal = Callable[..., None]
"""Takes entries back that there is nothing to undo of any more."""
TouchJournal = Callable[[JournalEntry, bool], None]
"""Marks an entry that was sent: whether what it undoes may be moved from now on. Never waits, and
whoever restores after a crash knows it, however soon that comes."""


class Originals:
    """Which entries the journal holds.

    Args:
        send_journal: Takes an entry that is not covered yet, before the change.
        release_journal: Takes back an entry that was sent.
        touch_journal: Marks an entry that was sent. Without it every entry that was sent is
            undone after a crash.
    """

    def __init__(
        self,
        send_journal: SendJournal,
        release_journal: ReleaseJournal | None = None,
        touch_journal: TouchJournal | None = None,
    ) -> None:
        self._send = send_journal
        self._release = release_journal
        self._touch = touch_journal
        self._covered: dict[JournalEntry, None] = {}
        self._moved: set[JournalEntry] = set()

    @property
    def entries(self) -> tuple[JournalEntry, ...]:
        """Everything covered, in order."""
        return tuple(self._covered)

    def note(self, entry: JournalEntry) -> None:
        """Cover ``entry`` without sending it: the caller hands it to the journal."""
        self._covered.setdefault(entry)

    def ensure(self, entry: JournalEntry) -> None:
        """Have ``entry`` undone after a crash; call before the change that it undoes."""
        self.ensure_all((entry,))

    def ensure_all(self, entries: Sequence[JournalEntry]) -> None:
        """:meth:`ensure` of many, in one message."""
        self.cover(entries)
        for entry in entries:
            self.touch(entry)

    def cover(self, entries: Sequence[JournalEntry]) -> None:
        """Have the journal know ``entries``; what they undo is not moved yet.

        What was noted of the same settings before is let go: without a touch table all that is
        noted is undone, the first value of each file, and somebody else has changed that since.
        """
        new = [entry for entry in entries if entry not in self._covered]
        if not new:
            return
        self._send(*new)
        settings = set(filter(None, map(_setting, new)))
        stale = [
            e for e in tuple(self._covered) if e not in self._moved and _setting(e) in settings
        ]
        for entry in new:
            self.note(entry)
        self.release_all(stale)

    def touch(self, entry: JournalEntry) -> None:
        """Have ``entry``, which is covered, undone after a crash; call before the change."""
        self._moved.add(entry)
        if self._touch is not None:
            self._touch(entry, True)

    def settle(self, entry: JournalEntry) -> None:
        """What ``entry`` undoes is as it was; until it is touched again it is not ours."""
        self._moved.discard(entry)
        if self._touch is not None:
            self._touch(entry, False)

    def moved(self, path: Path) -> bool:
        """Whether the value of ``path`` may be one of ours, so that it is no original."""
        return any(isinstance(e, FileValue) and e.path == path for e in tuple(self._moved))

    def uncover(self) -> None:
        """The journal has nothing of what was noted: each is sent before its first change."""
        self._covered.clear()

    def release(self, entry: JournalEntry) -> None:
        """What ``entry`` undoes is undone for good: what others do next is not ours to undo."""
        self.release_all((entry,))

    def release_all(self, entries: Sequence[JournalEntry]) -> None:
        """:meth:`release` of many, in one message."""
        known = [entry for entry in entries if entry in self._covered]
        self._moved.difference_update(known)
        for entry in known:
            del self._covered[entry]
        if known and self._release is not None:
            with contextlib.suppress(JournalError):  # they are undone once more, at worst
                self._release(*known)


def _setting(entry: JournalEntry) -> tuple[Path, str] | None:
    """Which setting an entry is a value of."""
    match entry:
        case FileValue(path=path):
            return path, ""
        case KeyedValue(path=path, key=key):
            return path, key
    return None
