"""One setting while it is ours: saved, written, read back, looked at, put back.

Whoever else changes it takes it over: it is left as it is, and what it is then is the original
from now on. A group that was removed and made anew is no such change: its files are new.
"""

from __future__ import annotations

import errno
from typing import Final

from stallward.actuator.errors import (
    ForeignError,
    KernelFileError,
    LeverError,
    NotTakenError,
)
from stallward.actuator.journal.entries import JournalEntry
from stallward.actuator.kernel.files import ABSENT
from stallward.actuator.levers.base.originals import Originals
from stallward.actuator.levers.base.setting_files import Setting

_NOT_TAKEN: Final = "took {taken!r} instead of {asked!r}"


class HeldSetting:
    """Moves one setting and puts it back.

    Args:
        setting: The setting.
        originals: Keeps the journal.
    """

    def __init__(self, setting: Setting, originals: Originals) -> None:
        self.setting = setting
        self._originals = originals
        self._entry: JournalEntry | None = None
        self._file: int | None = None
        self._before: str | None = None
        self._perhaps: set[str] = set()
        """What may be in force too, after a write of which nobody knows what became."""
        self.taken: str | None = None
        """What the kernel took of what was written last; ``None`` when nothing is held."""
        try:
            entry = setting.original()
        except KernelFileError:
            return  # a file that only root may read: not ours to change either
        if entry is not None:
            originals.note(entry)

    @property
    def held(self) -> bool:
        """Whether the setting may not be as it was."""
        return self.taken is not None

    def save(self) -> JournalEntry:
        """The original, safe in the journal; it is not touched yet.

        Raises:
            LeverError: If the setting is not there.
            ForeignError: If it is held, but somebody else has changed it.
            JournalError: If the journal does not take it.
        """
        self.look()
        if self._entry is None or self.taken is None:
            entry = self.setting.original()
            if entry is None:
                raise LeverError(f"{self.setting.path} is not there.")
            self._originals.cover((entry,))
            self._entry = entry
            self._file = self._identity()
        return self._entry

    def move(self, value: str) -> str:
        """Set ``value`` and read back what the kernel took.

        Raises:
            NotTakenError: If it took something else, which is held all the same.
            KernelFileError: If it refused.
        """
        entry = self.save()
        value = self.setting.capped(value, entry)
        before = self._before = self.taken
        self.taken = value  # even if the write fails half way it is put back
        self._originals.touch(entry)
        try:
            self.setting.write(value)
        except KernelFileError as error:
            self.taken = before if error.number in _CHANGES_NOTHING else self._uncertain(value)
            if self.taken is None:
                self._originals.settle(entry)
            raise
        taken = self._read()
        if taken is None:
            self.taken = self._uncertain(value)
            return value
        self.taken = taken
        self._perhaps.clear()
        if not self.setting.same(taken, value):
            said = _NOT_TAKEN.format(taken=taken, asked=value)
            raise NotTakenError(f"{self.setting.path}: the kernel {said}.")
        return taken

    def put_back(self) -> None:
        """Undo; nothing if nothing is held or the setting is gone.

        Raises:
            ForeignError: If somebody else has changed it; it is left as it is.
            LeverError: If the kernel did not take the original; it is still held.
            KernelFileError: If it refused; it is still held.
        """
        self.look()
        if self.taken is None or self._entry is None:
            return
        try:
            self.setting.put_back(self._entry)
        except KernelFileError as error:
            if error.number in ABSENT:
                self._forget()
                return
            self.taken = self._read() or self.taken
            raise
        if not self.setting.is_back(self._entry):
            self.taken = self._read() or self.taken
            raise LeverError(f"{self.setting.path}: not put back, it is {self.taken} now.")
        self._originals.settle(self._entry)
        self.taken = None
        self._perhaps.clear()

    def overtake(self) -> None:
        """Write the original while another thread is in a write of its own; it stays held.

        That write may still succeed, after this one: only when its thread is dead can anybody
        know that the original is back.

        Raises:
            KernelFileError: If the kernel refused.
        """
        entry = self._entry
        if self.taken is None or entry is None or self._identity() != self._file:
            return
        self._perhaps.add(getattr(entry, "value", ""))
        try:
            self.setting.put_back(entry)
        finally:  # what it made of it, or the other thread did, is nobody else's
            self._perhaps.add(self._read() or "")

    def look(self) -> None:
        """See whether it still is what was taken.

        Raises:
            ForeignError: If somebody else has changed it. It is not held any more.
        """
        if self.taken is None:
            return
        try:
            now = self.setting.read()
        except KernelFileError:
            return  # perhaps the next look can tell
        if now is None or self._identity() != self._file:
            self._forget()  # the group is gone, and a new one has settings of its own
            return
        if now in self._perhaps:
            self.taken = now
        if now != self.taken:  # which was read back, so it is exact
            self._forget()
            raise ForeignError(
                f"{self.setting.path} is {now} now, set by somebody else; left as it is.",
                value=now,
            )

    def _forget(self) -> None:
        if self._entry is not None:
            # After a crash too it is not ours to undo any more.
            self._originals.release(self._entry)
        self._entry = self._file = self.taken = None
        self._perhaps.clear()

    def _uncertain(self, value: str) -> str:
        """What is in force after a write that failed, as far as it can be told.

        Where it cannot be read either, it may be what was there or what was to be: neither is
        somebody else's.
        """
        now = self._read()
        if now is not None:
            return now
        original = getattr(self._entry, "value", value)
        self._perhaps |= {value, self._before or original}
        return value

    def _read(self) -> str | None:
        try:
            return self.setting.read()
        except KernelFileError:
            return None

    def _identity(self) -> int | None:
        """Changes when a group is removed and made anew.

        Files outside groups are always the same; /proc numbers its inodes anew as it likes.
        """
        if not self.setting.in_group:
            return None
        try:
            return self.setting.path.stat().st_ino
        except OSError:
            return None


_CHANGES_NOTHING: Final = ABSENT | {errno.EINVAL, errno.EPERM, errno.EACCES, errno.EROFS}
