"""One setting that the daemon holds: saved, written, read back, checked and put back.

After a foreign change the setting is no longer held: the foreign value stays, and is the original
from then on. A group that was removed and made anew is no foreign change: its files are new.
"""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import Final

from stallward.actuator.errors import (
    ForeignError,
    KernelFileError,
    LeverError,
    NotTakenError,
)
from stallward.actuator.journal.entries import FileValue, JournalEntry
from stallward.actuator.kernel.files import ABSENT
from stallward.actuator.levers.base.originals import Originals
from stallward.actuator.levers.base.setting_files import Setting

_NOT_TAKEN: Final = "took {taken!r} instead of {asked!r}"
_CHANGES_NOTHING: Final = ABSENT | {errno.EINVAL, errno.EPERM, errno.EACCES, errno.EROFS}


class HeldSetting:
    """Changes one setting and puts it back.

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
        self._possible: set[str] = set()
        """Values that may be in force after a write whose outcome is unknown."""
        self.taken: str | None = None
        """The value that the kernel took at the last write; ``None`` when nothing is held."""
        try:
            entry = setting.original()
        except KernelFileError:
            return  # a file that only root may read cannot be changed either
        if entry is not None:
            originals.note(entry)

    @property
    def held(self) -> bool:
        """Whether the setting may not have its original value."""
        return self.taken is not None

    def save(self) -> JournalEntry:
        """Return the original, which is safe in the journal by then but not touched yet.

        Raises:
            LeverError: If the setting is not there.
            ForeignError: If it is held, but there was a foreign change.
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
            NotTakenError: If the kernel took another value, which is held all the same.
            ForeignError: If another program set a value meanwhile, which is in force then.
            KernelFileError: If the kernel refused the value.
        """
        entry = self.save()
        value = self.setting.bounded(value, entry)
        before = self._before = self.taken
        original = getattr(entry, "value", "")
        known = (original if before is None else before, value)
        self.taken = value  # a write that fails half way is undone, too
        # After a write of which nobody knows the outcome, any value in force may be ours.
        is_known = self.setting.exact and not self._possible
        self._originals.touch(entry, known if is_known else ())
        try:
            theirs = self.setting.write(value)
        except KernelFileError as error:
            self._refuse_foreign(*known)
            self.taken = before if error.number in _CHANGES_NOTHING else self._uncertain(value)
            if self.taken is None:
                self._originals.settle(entry)
            raise
        taken = self._read()
        if taken is None:
            self.taken = self._uncertain(value)
            return value
        if theirs is not None and theirs not in self._possible and self.setting.same(taken, value):
            self._give_way(entry, theirs)
        self._refuse_foreign(value)
        self.taken = taken
        self._possible.clear()
        if not self.setting.same(taken, value):
            said = _NOT_TAKEN.format(taken=taken, asked=value)
            raise NotTakenError(f"{self.setting.path}: the kernel {said}.")
        return taken

    def put_back(self) -> None:
        """Write the original; do nothing if nothing is held or the setting is gone.

        Raises:
            ForeignError: If there was a foreign change; the foreign value stays.
            LeverError: If the kernel took another value; the setting is still held.
            KernelFileError: If the kernel refused; the setting is still held.
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
            self._originals.touch(self._entry)  # the kernel may have taken anything
            raise
        if not self.setting.is_back(self._entry):
            self._refuse_foreign(self.taken)
            self.taken = self._read() or self.taken
            raise LeverError(f"{self.setting.path}: not put back, it is {self.taken} now.")
        self._originals.settle(self._entry)
        self.taken = None
        self._possible.clear()

    def overtake(self) -> None:
        """Write the original while another thread hangs in a write; the setting stays held.

        The hanging write may still succeed after this one. The original is certain to be back
        only when that thread has ended.

        Raises:
            KernelFileError: If the kernel refused.
        """
        entry = self._entry
        if self.taken is None or entry is None or self._identity() != self._file:
            return
        self._possible.add(getattr(entry, "value", ""))
        try:
            self.setting.put_back(entry)
        finally:  # the value now, be it from this write or the other one, is not foreign
            self._possible.add(self._read() or "")

    def look(self) -> None:
        """Check that the setting still has the value that was taken.

        Raises:
            ForeignError: If there was a foreign change. The setting is not held any more.
        """
        if self.taken is None:
            return
        try:
            now = self.setting.read()
        except KernelFileError:
            return  # the next check may be able to read it
        if now is None or self._identity() != self._file:
            self._forget()  # the group was removed; a new one has its own settings
            return
        if self._is_possible(now):
            self.taken = now
        if now != self.taken:  # it was read back, so the comparison is exact
            self._forget()
            raise self._foreign(now)

    def _give_way(self, entry: JournalEntry, theirs: str) -> None:
        """Put in force what another program set while our value, now in force, was written.

        Raises:
            ForeignError: If it is in force; the setting is not held any more.
            KernelFileError: If the kernel refused; the setting is held, and it is the original.
        """
        if not isinstance(entry, FileValue):
            return
        new = replace(entry, value=theirs)
        try:
            self.setting.put_back(new)
        except KernelFileError:
            self.taken = self._read() or self.taken
            self._originals.ensure(new)
            self._originals.release(entry)
            self._entry = new
            raise
        self._forget()
        raise self._foreign(theirs)

    def _refuse_foreign(self, *ours: str) -> None:
        """Stop holding a setting that has neither of our values, though it takes them exactly.

        Raises:
            ForeignError: If it has another one.
        """
        now = self._read() if self.setting.exact else None
        if now is None or self._is_possible(now):
            return
        if not any(self.setting.same(now, one) for one in ours):
            self._forget()
            raise self._foreign(now)

    def _is_possible(self, now: str) -> bool:
        """Whether a value is what the kernel makes of one whose write had an unknown outcome."""
        return any(self.setting.same(now, one) for one in self._possible)

    def _foreign(self, now: str) -> ForeignError:
        said = f"{self.setting.path} is {now} now, set by another program; left as it is."
        return ForeignError(said, value=now)

    def _forget(self) -> None:
        if self._entry is not None:
            # A restore after a crash must not undo it any more either.
            self._originals.release(self._entry)
        self._entry = self._file = self.taken = None
        self._possible.clear()

    def _uncertain(self, value: str) -> str:
        """Return the value in force after a write that failed, as far as it is known.

        Where it cannot be read either, it may be the old value or the new one: neither counts
        as a foreign change.
        """
        now = self._read()
        if now is not None:
            return now
        original = getattr(self._entry, "value", value)
        self._possible |= {value, self._before or original}
        return value

    def _read(self) -> str | None:
        try:
            return self.setting.read()
        except KernelFileError:
            return None

    def _identity(self) -> int | None:
        """The file's inode number, which changes when a group is removed and made again.

        ``None`` for a file outside of groups: it stays the same file, but the inode numbers of
        /proc may change at any time.
        """
        if not self.setting.in_group:
            return None
        try:
            return self.setting.path.stat().st_ino
        except OSError:
            return None
