"""The originals of all settings: which of them the journal has, and which are changed now.

Most originals are in the journal before anything is changed, so that a change need not wait for
it. Only originals that are touched are restored after a crash: a foreign change of a setting that
the daemon never changed, or that it put back, must stay. So each is touched before the change,
never after it, and settled once the original is known to be back, never before.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from stallward.actuator.errors import JournalError
from stallward.actuator.journal.entries import FileValue, JournalEntry, setting_of

SendJournal = Callable[..., None]
"""Takes entries as its arguments and returns when they are safe in the journal. An error that it
raises prevents the change."""
ReleaseJournal = Callable[..., None]
"""Removes entries that need not be undone any more."""
TouchJournal = Callable[[JournalEntry, bool, Sequence[str]], None]
"""Marks an entry that was sent: whether the setting may be changed from now on, and from which
value to which one, as far as they are known. It never waits, and a restore after a crash sees the
mark, however soon the crash comes."""


class Originals:
    """Knows which entries the journal holds and which of them are touched.

    Args:
        send_journal: Called with entries that are not covered yet, before the change.
        release_journal: Called with entries that need not be undone any more.
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
        self._notes = True

    @property
    def entries(self) -> tuple[JournalEntry, ...]:
        """All entries that the journal has, in order."""
        return tuple(self._covered)

    def note(self, entry: JournalEntry) -> None:
        """Cover ``entry`` without sending it: the caller hands it to the journal."""
        if self._notes:
            self._covered.setdefault(entry)

    def ensure(self, entry: JournalEntry, values: Sequence[str] = ()) -> None:
        """Have ``entry`` undone after a crash; call before the change that it undoes."""
        self.cover((entry,))
        self.touch(entry, values)

    def ensure_all(self, entries: Sequence[JournalEntry]) -> None:
        """Call :meth:`ensure` for many entries with one message to the journal."""
        self.cover(entries)
        for entry in entries:
            self.touch(entry)

    def cover(self, entries: Sequence[JournalEntry]) -> None:
        """Have the journal know ``entries``; the settings are not changed yet.

        Older entries of the same settings are released: without a touch table everything noted is
        undone, with the first value of each file, and that value is no longer the original.
        """
        new = [entry for entry in entries if entry not in self._covered]
        if not new:
            return
        self._send(*new)
        settings = set(filter(None, map(setting_of, new)))
        stale = [
            e for e in tuple(self._covered) if e not in self._moved and setting_of(e) in settings
        ]
        self._covered |= dict.fromkeys(new)
        self.release_all(stale)

    def touch(self, entry: JournalEntry, values: Sequence[str] = ()) -> None:
        """Have ``entry``, which is covered, undone after a crash; call before the change.

        Args:
            entry: The original.
            values: The value in force and the one that is to be written: if neither is in force
                after a crash, another program has written since, and its value stays. Without
                them the original is written in any case.
        """
        self._moved.add(entry)
        if self._touch is not None:
            self._touch(entry, True, values)

    def touch_again(self, path: Path, values: Sequence[str]) -> None:
        """Call :meth:`touch` for the original of a file that is moved already."""
        for entry in tuple(self._moved):
            if isinstance(entry, FileValue) and entry.path == path:
                self.touch(entry, values)

    def settle(self, entry: JournalEntry) -> None:
        """Note that the original of ``entry`` is back: it is not undone until touched again."""
        self._moved.discard(entry)
        if self._touch is not None:
            self._touch(entry, False, ())

    def moved(self, path: Path) -> bool:
        """Whether the daemon may have set the value of ``path``, so that it is not an original."""
        return any(isinstance(e, FileValue) and e.path == path for e in tuple(self._moved))

    def uncover(self) -> None:
        """Forget what was noted, since the journal lacks it: send each before its first change."""
        self._covered.clear()

    @contextlib.contextmanager
    def unnoted(self) -> Iterator[None]:
        """Let :meth:`note` do nothing meanwhile: each entry is sent before its first change."""
        self._notes = False
        try:
            yield
        finally:
            self._notes = True

    def forget_below(self, folders: Sequence[Path]) -> None:
        """Have the journal drop the entries of files in these folders, which are not changed."""
        self.release_all(
            [
                entry
                for entry in tuple(self._covered)
                if (path := getattr(entry, "path", None) or getattr(entry, "folder", None))
                is not None
                and any(path.is_relative_to(folder) for folder in folders)
            ]
        )

    def release(self, entry: JournalEntry) -> None:
        """Remove ``entry`` from the journal: it is undone, and later changes are foreign."""
        self.release_all((entry,))

    def release_all(self, entries: Sequence[JournalEntry]) -> None:
        """Call :meth:`release` for many entries with one message to the journal."""
        known = [entry for entry in entries if entry in self._covered]
        self._moved.difference_update(known)
        for entry in known:
            del self._covered[entry]
        if known and self._release is not None:
            with contextlib.suppress(JournalError):  # at worst they are undone once more
                self._release(*known)
