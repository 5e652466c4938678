"""One setting that the daemon holds: saved, written, read back, checked and put back.

After a foreign change the setting is no longer held: the foreign value stays, and is the original
from then on. A group that was removed and made anew is no foreign change: its files are new.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from stallward.actuator.errors import ForeignError, KernelFileError, LeverError, NotTakenError
from stallward.actuator.journal.entries import FileValue, JournalEntry, KeyedValue
from stallward.actuator.kernel.files import ABSENT, read_text, write_text
from stallward.actuator.kernel.memory.limit_writes import write_interruptibly, write_watched
from stallward.actuator.levers.base.originals import Originals


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainFile:
    """A file with one value; other settings are read, written or compared in another way."""

    path: Path
    """The file."""
    tolerance: int = 1
    """A number read may differ from the one written by less than this."""
    cap: bool = False
    """Whether a number is never set above the original."""
    in_group: bool = True
    """Whether the file belongs to a cgroup and is removed with it."""
    exact: bool = False
    """Whether the kernel takes each value as it is, or as rounded: another one is foreign."""

    def read(self) -> str | None:
        """Return the value in force; ``None`` if the setting is not there.

        Raises:
            KernelFileError: If it is there but cannot be read.
        """
        return read_text(self.path)

    def write(self, value: str) -> str | None:
        """Set a value; return what another program set while this one was being written.

        Raises:
            KernelFileError: If the kernel refuses.
        """
        write_text(self.path, value)
        return None

    def same(self, taken: str, asked: str) -> bool:
        """Whether ``taken`` is what the kernel makes of ``asked``: equal but for rounding."""
        if taken.split() == asked.split():
            return True
        return _number(taken) and _number(asked) and abs(int(taken) - int(asked)) < self.tolerance

    def bounded(self, value: str, original: JournalEntry) -> str:
        """Return the smaller number; "max" and negative numbers mean no limit."""
        before = original.value if isinstance(original, FileValue) else ""
        if self.cap and before.isdigit() and value.isdigit():
            return min(value, before, key=int)
        return value

    def original(self) -> JournalEntry | None:
        """Return the entry that restores the value of now; ``None`` if there is no setting."""
        value = self.read()
        return None if value is None else FileValue(self.path, value)

    def put_back(self, entry: JournalEntry) -> None:
        """Restore the value that ``entry`` holds.

        Raises:
            KernelFileError: If the kernel refuses.
        """
        if isinstance(entry, FileValue):
            write_text(entry.path, entry.value)

    def is_back(self, entry: JournalEntry) -> bool:
        """Whether the file has its original content."""
        return isinstance(entry, FileValue) and read_text(entry.path) == entry.value


@dataclass(frozen=True, slots=True, kw_only=True)
class PairFile(PlainFile):
    """A file with a counterpart that a write to it sets to zero (vm.dirty_bytes, _ratio).

    The original is the one in force; writing it back sets the other one to zero, as it was.
    """

    bytes_path: Path
    ratio_path: Path

    def original(self) -> JournalEntry | None:
        """Return the bytes if they are not zero, else the ratio."""
        for path in (self.bytes_path, self.ratio_path):
            value = read_text(path)
            if value is not None and (path == self.ratio_path or value != "0"):
                return FileValue(path, value)
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReclaimingFile(PlainFile):
    """A memory limit: a write of a lower one reclaims, and can be interrupted meanwhile."""

    exact: bool = True

    def write(self, value: str) -> str | None:
        """Write the whole file."""
        write_interruptibly(self.path, value)
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitFile(ReclaimingFile):
    """A v1 memory limit: the kernel refuses one below the present usage."""

    def write(self, value: str) -> str | None:
        """Write the whole file; it takes effect when enough is reclaimed, over any other."""
        return write_watched(self.path, value, lambda one: PlainFile.same(self, one, value))

    def put_back(self, entry: JournalEntry) -> None:
        """Write the original; if the kernel refuses it, remove the limit and raise the refusal."""
        try:
            # Not super(): it does not work in a dataclass with slots.
            PlainFile.put_back(self, entry)
        except KernelFileError as error:
            if error.number == errno.EBUSY:
                write_text(self.path, "-1")
            raise


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtectionFile(PlainFile):
    """Memory that a group keeps, which is never set below what the operator gave it."""

    def bounded(self, value: str, original: JournalEntry) -> str:
        """Return the larger number; "max" is the largest."""
        before = original.value if isinstance(original, FileValue) else ""
        if before == "max":
            return before
        return max(value, before, key=int) if before.isdigit() else value


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaFile(PlainFile):
    """cpu.max: ``QUOTA PERIOD`` in microseconds, or ``max PERIOD``."""

    exact: bool = True

    def bounded(self, value: str, original: JournalEntry) -> str:
        """Return the quota with the smaller share of a CPU."""
        before = original.value if isinstance(original, FileValue) else ""
        return min(value, before or value, key=_quota_share)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedFile(PlainFile):
    """A file with one line ``KEY VALUE`` per key, e.g. per disk."""

    key: str
    """The key, e.g. ``254:0``."""
    default: str
    """The value where there is no line for the key. Other names in a line are not looked at."""
    cap: bool = True

    def read(self) -> str | None:
        """Return the value of the key."""
        text = read_text(self.path)
        if text is None:
            return None
        for line in text.splitlines():
            key, _, value = line.strip().partition(" ")
            if key == self.key:
                names = {_word(word)[0] for word in self.default.split()}
                return " ".join(word for word in value.split() if _word(word)[0] in names)
        return self.default

    def write(self, value: str) -> str | None:
        """Set the value of the key; other keys keep theirs."""
        write_text(self.path, f"{self.key} {value}")
        return None

    def same(self, taken: str, asked: str) -> bool:
        """Whether all words asked for are there; other words may have any value."""
        return set(asked.split()) <= set(taken.split())

    def bounded(self, value: str, original: JournalEntry) -> str:
        """Return the smaller number of each ``NAME=NUMBER``; 0 and "max" mean no limit."""
        before = original.value if isinstance(original, KeyedValue) else ""
        if not self.cap:
            return value
        originals = dict(_word(word) for word in before.split())
        words = []
        for name, number in (_word(word) for word in value.split()):
            limits = [n for n in (number, originals.get(name, "")) if n.isdigit() and n != "0"]
            least = min(limits, key=int, default=number)
            words.append(f"{name}={least}" if name else least)
        return " ".join(words)

    def original(self) -> JournalEntry | None:
        """Return an entry with the value of the key now."""
        value = self.read()
        return None if value is None else KeyedValue(self.path, self.key, value)

    def put_back(self, entry: JournalEntry) -> None:
        """Write the value of the key back."""
        if isinstance(entry, KeyedValue):
            write_text(entry.path, f"{entry.key} {entry.value}")

    def is_back(self, entry: JournalEntry) -> bool:
        """Whether the key has its original value."""
        return isinstance(entry, KeyedValue) and self.read() == entry.value


def _number(text: str) -> bool:
    return text.removeprefix("-").isdigit()


def _word(word: str) -> tuple[str, str]:
    name, equals, number = word.rpartition("=")
    return (name, number) if equals else ("", word)


def _quota_share(text: str) -> float:
    quota, _, period = text.partition(" ")
    if not quota.isdigit():
        return float("inf")
    return int(quota) / int(period) if period.isdigit() and int(period) else int(quota)


_NOT_TAKEN: Final = "took {taken!r} instead of {asked!r}"
_CHANGES_NOTHING: Final = ABSENT | {errno.EINVAL, errno.EPERM, errno.EACCES, errno.EROFS}


class HeldSetting:
    """Changes one setting and puts it back.

    Args:
        setting: The setting.
        originals: Keeps the journal.
    """

    def __init__(self, setting: PlainFile, originals: Originals) -> None:
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
