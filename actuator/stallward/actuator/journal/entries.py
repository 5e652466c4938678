"""The entries of a journal, one for each change to undo, and their form on a line.

A line is one JSON object with a checksum, so that a line cut short by a crash is recognised. This
needs the standard library only: processes that hold entries must start fast and stay small.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, get_type_hints

from stallward.actuator.errors import JournalError
from stallward.actuator.kernel.memory.limit_writes import LARGEST_PAGE_BYTES


@dataclass(frozen=True, slots=True)
class FileValue:
    """A file had this value; restoring writes it back.

    Writing one of vm.dirty_bytes and vm.dirty_ratio sets the other to zero. So only the one in
    force is noted, and writing it back restores both.
    """

    path: Path
    value: str


@dataclass(frozen=True, slots=True)
class KeyedValue:
    """A file of lines ``KEY VALUE`` had this value for a key; restoring writes that line."""

    path: Path
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class Frozen:
    """A cgroup.freeze file, or a v1 freezer.state; restoring thaws."""

    path: Path


@dataclass(frozen=True, slots=True)
class Stopped:
    """A process that is stopped; restoring sends SIGCONT."""

    pid: int
    start_time_ticks: int


@dataclass(frozen=True, slots=True)
class OomScore:
    """A process had this oom_score_adj."""

    pid: int
    start_time_ticks: int
    value: int


@dataclass(frozen=True, slots=True)
class ThreadValue:
    """A thread had this value of ``what``, a setting of ``kernel/scheduling.py``."""

    what: str
    tid: int
    start_time_ticks: int
    value: str


@dataclass(frozen=True, slots=True)
class GroupThreads:
    """Threads of a group were given ``written`` where they had ``value``.

    Restoring sets ``value`` on every thread of the group that has ``written``, also on threads
    that were started since and inherited it. A thread that had another value has a
    :class:`ThreadValue`.
    """

    what: str
    folder: Path
    """The group's directory; directories below it count, too."""
    written: str
    value: str


@dataclass(frozen=True, slots=True)
class OwnedGroup:
    """A cgroup of our own; restoring kills all in it and removes it from every hierarchy."""

    name: str


@dataclass(frozen=True, slots=True)
class SwapFile:
    """A swap file of our own; restoring takes it out of use and deletes it."""

    path: Path


@dataclass(frozen=True, slots=True)
class ZramDevice:
    """A zram device of our own; restoring takes it out of use and removes it."""

    path: Path


@dataclass(frozen=True, slots=True)
class OwnedFolder:
    """A temporary folder of our own; restoring removes it and everything in it."""

    path: Path


Notable = FileValue | KeyedValue | Frozen
NOTABLE: Final = (FileValue, KeyedValue, Frozen)


@dataclass(frozen=True, slots=True)
class Noted:
    """``entry`` is undone only if its place in the touch table is marked.

    See :mod:`stallward.actuator.ipc.shared_memory`. Without a table it is always undone.
    """

    entry: Notable
    place: int
    written: tuple[int, ...] = field(default=(), compare=False)
    """What the daemon wrote last, see :mod:`stallward.actuator.journal.entries`; empty
    where that is not known. It is no part of the journal."""


JournalEntry = (
    FileValue
    | KeyedValue
    | Frozen
    | Stopped
    | OomScore
    | ThreadValue
    | GroupThreads
    | OwnedGroup
    | SwapFile
    | ZramDevice
    | OwnedFolder
    | Noted
)
Operation = Literal["hold", "release"]


def setting_of(entry: JournalEntry) -> tuple[Path, str] | None:
    """Return the file, and the key in it, that an entry restores; ``None`` if it is not of one."""
    inner = entry.entry if isinstance(entry, Noted) else entry
    match inner:
        case FileValue(path=path) | Frozen(path=path):
            return path, ""
        case KeyedValue(path=path, key=key):
            return path, key
    return None


_KINDS: Final[dict[str, type[Any]]] = {
    "file": FileValue,
    "keyed": KeyedValue,
    "frozen": Frozen,
    "stopped": Stopped,
    "oom": OomScore,
    "thread": ThreadValue,
    "threads": GroupThreads,
    "group": OwnedGroup,
    "swap": SwapFile,
    "zram": ZramDevice,
    "folder": OwnedFolder,
}
_NAMES: Final = {cls: kind for kind, cls in _KINDS.items()}
_FIELDS: Final[dict[str, dict[str, type[Any]]]] = {
    kind: get_type_hints(cls) for kind, cls in _KINDS.items()
}
_RANGES: Final = {
    "pid": (1, 1 << 31),
    "tid": (1, 1 << 31),
    "start_time_ticks": (0, 1 << 63),
    "place": (0, 1 << 31),
}
"""The lowest allowed number of a field, and the end of the range, which is not allowed."""
_PATHS: Final = frozenset({"path", "folder"})
_PLACE: Final = "place"
"""The field that only lines of :class:`Noted` entries have."""
_NOTABLE: Final = frozenset(_NAMES[cls] for cls in NOTABLE)


def _body(fields: dict[str, object]) -> str:
    return json.dumps(fields, sort_keys=True, separators=(",", ":"))


def seal(fields: dict[str, object]) -> str:
    """Make one line (without newline) of ``fields`` and their checksum."""
    return _body({**fields, "crc": zlib.crc32(_body(fields).encode())})


def unseal(line: str) -> dict[str, object]:
    """Return the fields of a line that :func:`seal` made.

    Raises:
        JournalError: If the line is cut short or was changed.
    """
    try:
        fields = json.loads(line)
        crc = fields.pop("crc")
        if crc != zlib.crc32(_body(fields).encode()):
            raise ValueError("wrong checksum")
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise JournalError(f"Not a journal line: {line[:80]!r} ({error}).") from error
    return {str(key): value for key, value in fields.items()}


def to_line(entry: JournalEntry, operation: Operation = "hold") -> str:
    """Make one line (without newline) for ``entry``."""
    fields: dict[str, object] = {"op": operation}
    if isinstance(entry, Noted):
        fields[_PLACE] = entry.place
        entry = entry.entry
    kind = fields["kind"] = _NAMES[type(entry)]
    for name, cls in _FIELDS[kind].items():
        value = getattr(entry, name)
        fields[name] = str(value) if cls is Path else value
    return seal(fields)


def from_fields(fields: dict[str, object]) -> tuple[Operation, JournalEntry]:
    """Return the operation and entry of an unsealed line.

    Raises:
        JournalError: If this version does not know such an entry.
    """
    kind = fields.get("kind")
    known = _FIELDS.get(kind) if isinstance(kind, str) else None
    operation = fields.get("op")
    noted = {_PLACE: int} if _PLACE in fields and kind in _NOTABLE else {}
    if known is None or set(fields) != {"op", "kind", *known, *noted}:
        raise JournalError(f"Not a journal entry of this version: {fields!s:.200}.")
    if operation != "hold" and operation != "release":  # noqa: PLR1714 - narrows the type
        raise JournalError(f"Not a journal operation: {fields!s:.200}.")
    values: dict[str, object] = {}
    for name, cls in (known | noted).items():
        value = fields[name]
        if type(value) is not (str if cls is Path else cls):
            raise JournalError(f"Wrong type of {name} in a journal entry: {fields!s:.200}.")
        _check(name, value)
        values[name] = Path(str(value)) if cls is Path else value
    place = values.pop(_PLACE, None)
    entry: Any = _KINDS[str(kind)](**values)
    return operation, entry if place is None else Noted(entry, int(str(place)))


def _check(name: str, value: object) -> None:
    """Refuse a value that no valid entry has: undoing it would fail and hold up other entries.

    Raises:
        JournalError: If the value is invalid.
    """
    if isinstance(value, int):
        low, high = _RANGES.get(name, (-(1 << 63), 1 << 63))
        usable = low <= value < high
    else:
        text = str(value)
        try:
            usable = b"\0" not in (os.fsencode(text) if name in _PATHS else text.encode())
        except UnicodeEncodeError:
            usable = False
        usable = usable and (name not in _PATHS or text.startswith("/"))
    if not usable:
        raise JournalError(f"{name} of a journal entry cannot be {value!r:.80}.")


def from_line(line: str) -> tuple[Operation, JournalEntry]:
    """Return the operation and entry of one line.

    Raises:
        JournalError: If the line is cut short, was changed or is of another version.
    """
    return from_fields(unseal(line))


# ---------- Tells a value that the daemon wrote from one that another program wrote since
# Beside the mark of each original the memory that guardian and loop share holds two values, as
# numbers: the one that was in force before the last write, and the one that was written. If the
# daemon dies, one of them is in force, unless another program, such as the kubelet that resizes a
# pod, has written its own. That one stays.

UNKNOWN: Final = 0
"""Stands for a value that may be any."""
_TEXT: Final = 1 << 63
_MEMORY: Final = "memory."


def number_of(value: str) -> int:
    """The number that stands for a setting's value; never :data:`UNKNOWN`."""
    if value.isascii() and value.isdigit() and len(value) < 20 and int(value) + 1 < _TEXT:
        return int(value) + 1
    return _TEXT | zlib.crc32(" ".join(value.split()).encode())


def numbers_of(values: Sequence[str]) -> tuple[int, int]:
    """The numbers for the values before and after a write; unknown ones where there are none."""
    if len(values) != 2:
        return UNKNOWN, UNKNOWN
    return number_of(values[0]), number_of(values[1])


def may_be_ours(name: str, now: str, written: Iterable[int]) -> bool:
    """Whether the value in force may be one of those that ``written`` stands for.

    Args:
        name: The name of the setting's file.
        now: The value in force.
        written: The numbers; without any, or with an unknown one, each value may be ours.
    """
    numbers = tuple(written)
    if not numbers or UNKNOWN in numbers:
        return True
    found, rounding = number_of(now), LARGEST_PAGE_BYTES if name.startswith(_MEMORY) else 1
    return any(
        number == found or (number < _TEXT and 0 <= number - found < rounding)
        for number in numbers
    )
