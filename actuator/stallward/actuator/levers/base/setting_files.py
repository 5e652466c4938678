"""Files that hold a setting: how one is read, written, compared and put back."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from stallward.actuator.errors import KernelFileError
from stallward.actuator.journal.entries import FileValue, JournalEntry, KeyedValue
from stallward.actuator.kernel.files import read_text, write_text

LARGEST_PAGE_BYTES: Final = 65536
"""The kernel keeps whole pages; none is larger than this on the machines it runs on."""


class Setting(Protocol):
    """One setting in one file."""

    @property
    def path(self) -> Path:
        """The file."""

    @property
    def in_group(self) -> bool:
        """Whether the file goes and comes with a cgroup."""

    def read(self) -> str | None:
        """What is in force; ``None`` if the setting is not there.

        Raises:
            KernelFileError: If it is there but cannot be read.
        """

    def write(self, value: str) -> None:
        """Set it.

        Raises:
            KernelFileError: If the kernel refuses.
        """

    def same(self, taken: str, asked: str) -> bool:
        """Whether ``taken`` is what becomes of ``asked``; rounding is no difference."""

    def capped(self, value: str, original: JournalEntry) -> str:
        """``value``, but never more than the original allowed."""

    def original(self) -> JournalEntry | None:
        """What undoes a change made from now on; ``None`` if the setting is not there."""

    def put_back(self, entry: JournalEntry) -> None:
        """Undo by ``entry``.

        Raises:
            KernelFileError: If the kernel refuses.
        """

    def is_back(self, entry: JournalEntry) -> bool:
        """Whether what ``entry`` says is in force again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainFile:
    """A file with one value.

    Args:
        path: The file.
        tolerance: By how much less than this a number read may differ from the one written.
        cap: Whether a number is never set above the original.
        in_group: Whether the file goes and comes with a cgroup.
    """

    path: Path
    tolerance: int = 1
    cap: bool = False
    in_group: bool = True

    def read(self) -> str | None:
        """The whole file."""
        return read_text(self.path)

    def write(self, value: str) -> None:
        """Write the whole file."""
        write_text(self.path, value)

    def same(self, taken: str, asked: str) -> bool:
        """Equal as text, or as numbers within the tolerance."""
        if taken.split() == asked.split():
            return True
        return _number(taken) and _number(asked) and abs(int(taken) - int(asked)) < self.tolerance

    def capped(self, value: str, original: JournalEntry) -> str:
        """The smaller of two numbers; "max" and negative numbers are no limit."""
        before = original.value if isinstance(original, FileValue) else ""
        if self.cap and before.isdigit() and value.isdigit():
            return min(value, before, key=int)
        return value

    def original(self) -> JournalEntry | None:
        """The present content."""
        value = self.read()
        return None if value is None else FileValue(self.path, value)

    def put_back(self, entry: JournalEntry) -> None:
        """Write the content back."""
        if isinstance(entry, FileValue):
            write_text(entry.path, entry.value)

    def is_back(self, entry: JournalEntry) -> bool:
        """Whether the file that was written says so."""
        return isinstance(entry, FileValue) and read_text(entry.path) == entry.value


@dataclass(frozen=True, slots=True, kw_only=True)
class PairFile(PlainFile):
    """One of two files of which writing one zeroes the other (vm.dirty_bytes, _ratio).

    The one in force is the original; writing it back zeroes the other, as it was.
    """

    bytes_path: Path
    ratio_path: Path

    def original(self) -> JournalEntry | None:
        """Bytes if they are not zero, else the ratio."""
        for path in (self.bytes_path, self.ratio_path):
            value = read_text(path)
            if value is not None and (path == self.ratio_path or value != "0"):
                return FileValue(path, value)
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitFile(PlainFile):
    """A v1 memory limit: the kernel refuses one below what is used now."""

    def put_back(self, entry: JournalEntry) -> None:
        """The original, or no limit rather than a stuck one; then the refusal is raised."""
        try:
            # By its name: super() has no cell in a dataclass with slots.
            PlainFile.put_back(self, entry)
        except KernelFileError as error:
            if error.number == errno.EBUSY:
                write_text(self.path, "-1")
            raise


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaFile(PlainFile):
    """cpu.max: ``QUOTA PERIOD`` in microseconds, or ``max PERIOD``."""

    def capped(self, value: str, original: JournalEntry) -> str:
        """The smaller share."""
        before = original.value if isinstance(original, FileValue) else ""
        return min(value, before or value, key=_quota_share)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedFile:
    """A file with one line ``KEY VALUE`` per key, e.g. per disk.

    Args:
        path: The file.
        key: E.g. ``254:0``.
        default: What holds where there is no line for the key.
        in_group: Whether the file goes and comes with a cgroup.
        cap: Whether a number is never set above the original.
    """

    path: Path
    key: str
    default: str
    in_group: bool = True
    cap: bool = True

    def read(self) -> str | None:
        """The value of the key."""
        text = read_text(self.path)
        if text is None:
            return None
        for line in text.splitlines():
            key, _, value = line.strip().partition(" ")
            if key == self.key:
                return value
        return self.default

    def write(self, value: str) -> None:
        """Set the key; other keys stay."""
        write_text(self.path, f"{self.key} {value}")

    def same(self, taken: str, asked: str) -> bool:
        """Whether all that was asked for is there; what was not named may be anything."""
        return set(asked.split()) <= set(taken.split())

    def capped(self, value: str, original: JournalEntry) -> str:
        """Per word ``NAME=NUMBER`` (or ``NUMBER``) the smaller one; 0 and "max" are no limit."""
        before = original.value if isinstance(original, KeyedValue) else ""
        if not self.cap:
            return value
        known = dict(_word(word) for word in before.split())
        words = []
        for name, number in (_word(word) for word in value.split()):
            limits = [n for n in (number, known.get(name, "")) if n.isdigit() and n != "0"]
            least = min(limits, key=int, default=number)
            words.append(f"{name}={least}" if name else least)
        return " ".join(words)

    def original(self) -> JournalEntry | None:
        """The present value of the key."""
        value = self.read()
        return None if value is None else KeyedValue(self.path, self.key, value)

    def put_back(self, entry: JournalEntry) -> None:
        """Write the value of the key back."""
        if isinstance(entry, KeyedValue):
            write_text(entry.path, f"{entry.key} {entry.value}")

    def is_back(self, entry: JournalEntry) -> bool:
        """Whether the key has its value."""
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
