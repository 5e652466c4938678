"""Files that hold a setting: how it is read, written, compared and put back."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from stallward.actuator.errors import KernelFileError
from stallward.actuator.journal.entries import FileValue, JournalEntry, KeyedValue
from stallward.actuator.kernel.files import read_text, write_text
from stallward.actuator.kernel.memory.interruptible import write_interruptibly
from stallward.actuator.kernel.memory.watched_write import write_watched


class Setting(Protocol):
    """One setting in one file."""

    @property
    def path(self) -> Path:
        """The file."""

    @property
    def in_group(self) -> bool:
        """Whether the file belongs to a cgroup and is removed with it."""

    @property
    def exact(self) -> bool:
        """Whether any value but the one that was written, as rounded, is somebody else's."""

    def read(self) -> str | None:
        """Return the value in force; ``None`` if the setting is not there.

        Raises:
            KernelFileError: If it is there but cannot be read.
        """

    def write(self, value: str) -> str | None:
        """Set a value; return what another program set while this one was being written.

        Raises:
            KernelFileError: If the kernel refuses.
        """

    def same(self, taken: str, asked: str) -> bool:
        """Whether ``taken`` is what the kernel makes of ``asked``; rounding does not count."""

    def bounded(self, value: str, original: JournalEntry) -> str:
        """Return ``value``, or the original where ``value`` would undo what that is for."""

    def original(self) -> JournalEntry | None:
        """Return the entry that restores the value of now; ``None`` if there is no setting."""

    def put_back(self, entry: JournalEntry) -> None:
        """Restore the value that ``entry`` holds.

        Raises:
            KernelFileError: If the kernel refuses.
        """

    def is_back(self, entry: JournalEntry) -> bool:
        """Whether the value that ``entry`` holds is in force again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainFile:
    """A file with one value."""

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
        """Read the whole file."""
        return read_text(self.path)

    def write(self, value: str) -> str | None:
        """Write the whole file."""
        write_text(self.path, value)
        return None

    def same(self, taken: str, asked: str) -> bool:
        """Whether both are equal as text, or as numbers within the tolerance."""
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
        """Return an entry with the content of now."""
        value = self.read()
        return None if value is None else FileValue(self.path, value)

    def put_back(self, entry: JournalEntry) -> None:
        """Write the content back."""
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
class KeyedFile:
    """A file with one line ``KEY VALUE`` per key, e.g. per disk."""

    path: Path
    """The file."""
    key: str
    """The key, e.g. ``254:0``."""
    default: str
    """The value where there is no line for the key."""
    in_group: bool = True
    """Whether the file belongs to a cgroup and is removed with it."""
    cap: bool = True
    """Whether a number is never set above the original."""
    exact: bool = False
    """Whether any value but the one that was written is somebody else's."""

    def read(self) -> str | None:
        """Return the value of the key."""
        text = read_text(self.path)
        if text is None:
            return None
        for line in text.splitlines():
            key, _, value = line.strip().partition(" ")
            if key == self.key:
                return value
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
