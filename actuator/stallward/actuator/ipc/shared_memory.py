"""Memory that the guardian shares with its loop, and that outlives the loop.

A write to it needs no message and no wait, and it stays whatever happens to the writer: a byte
that is stored before a setting is changed is seen by the process that restores. The memory holds
the *touch table*, one byte for each original that the journal has noted (whether the setting may
be changed), then for each of them what was written last
(:mod:`stallward.actuator.journal.entries`), and then the pauses of the slots
(:mod:`stallward.actuator.ipc.shared_memory`).

Where the journal is on a tmpfs, the memory is a file beside it and outlives the guardian, too: the
next daemon continues from the pauses in it. Elsewhere it is memory without a name, because storing
to a page of a file on a disk may have to wait for that disk.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import stat
import struct
import zlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from stallward.actuator.guard.slot_tracker import PauseHistory, SlotTracker
from stallward.actuator.journal.disk import Journal
from stallward.actuator.journal.entries import JournalEntry, Noted, numbers_of
from stallward.actuator.kernel.files import read_text
from stallward.actuator.kernel.paths import Paths

# ---------- The pauses of the slots, in memory that outlives the loop, so that the next loop knows them
# Each slot has two records, written in turn, each with a number and a checksum. A loop that is
# killed while it writes leaves a torn record and a whole one, which is one event older. The loop
# writes that a slot is paused *before* its levers move, and that it runs *after* they have moved, so
# that the records never show less pausing than there was.
# The time since which the loop itself keeps the slot paused follows the records, with the longest
# pause that the slot's pod allows. The guardian reads both: a pause that another program made is not
# the loop's to end.

MAX_PAUSES: Final = 100
"""The most pauses of one slot that are kept. If there are more, the oldest are merged into one,
which then includes the time between them."""
_HEAD: Final = struct.Struct("<IQIdd")
"""The checksum of the rest, the record's number (0 if never written), the number of pauses, the
begin of the present pause and the time of the last thaw (NaN for none)."""
_PAUSE: Final = struct.Struct("<dd")
"""The begin and the end of one pause."""
_RECORD_BYTES: Final = 2048
SLOT_BYTES: Final = 2 * _RECORD_BYTES
_CRC_BYTES: Final = 4
_KEPT_SINCE_BYTES: Final = 8
_LONGEST_BYTES: Final = 8
_LEAST_S: Final = 1e-3
"""Stands for a bound of 0, which in memory means that there is none."""


class PauseMemory:
    """Reads and writes the pauses of a daemon's slots.

    Args:
        memory: At least :data:`SLOT_BYTES` for each slot; zeros where nothing was written yet.
        slots: How many slots there are.
    """

    def __init__(self, memory: memoryview | bytearray, slots: int) -> None:
        self._memory = memory
        self._numbers = [max(number, 0) for number, _ in map(self._newest, range(slots))]
        self._written = [-1] * slots
        self._kept_since = [_kept_since(memory, slot) for slot in range(slots)]
        self._longest = [_longest(memory, slot) for slot in range(slots)]
        self._keeps: list[bool] = [bool(since_s[0]) for since_s in self._kept_since]

    def keep(
        self, time_s: float, slots: Iterable[int], longest_s: Sequence[float | None] = ()
    ) -> None:
        """Note that the loop pauses ``slots`` from ``time_s`` on; call it before levers move.

        Args:
            time_s: CLOCK_MONOTONIC.
            slots: The slots.
            longest_s: The longest pause that the pod of each slot of the node allows, which holds
                for this pause until it ends; ``None`` for no bound.
        """
        for slot in slots:
            if not self._keeps[slot]:
                bound_s = longest_s[slot] if slot < len(longest_s) else None
                self._longest[slot][0] = 0.0 if bound_s is None else max(bound_s, _LEAST_S)
                self._kept_since[slot][0], self._keeps[slot] = time_s, True

    def keep_only(self, slots: Collection[int]) -> None:
        """Note that the loop keeps only ``slots`` paused; call it after levers have moved."""
        for slot, keeps in enumerate(self._keeps):
            if keeps and slot not in slots:
                self._kept_since[slot][0], self._keeps[slot] = 0.0, False

    def load(self) -> tuple[PauseHistory | None, ...]:
        """Return what the last loop wrote of each slot; ``None`` where no record is whole."""
        return tuple(self._newest(slot)[1] for slot in range(len(self._numbers)))

    def note(self, tracker: SlotTracker) -> None:
        """Write the slots of ``tracker`` that changed since the last call; takes microseconds."""
        for slot, change in enumerate(tracker.changes()):
            if change != self._written[slot]:
                self._write(slot, tracker.history(slot))
                self._written[slot] = change

    def _write(self, slot: int, history: PauseHistory) -> None:
        self._numbers[slot] += 1
        number = self._numbers[slot]
        data = _encode(number, history)
        start = slot * SLOT_BYTES + number % 2 * _RECORD_BYTES
        self._memory[start : start + len(data)] = data

    def _newest(self, slot: int) -> tuple[int, PauseHistory | None]:
        """Return the number and the history of a slot's newest whole record."""
        start = slot * SLOT_BYTES
        starts = (start, start + _RECORD_BYTES)
        records = [_decode(bytes(self._memory[at : at + _RECORD_BYTES])) for at in starts]
        return max(records, key=lambda record: record[0])


def kept_since(memory: memoryview, slots: int) -> tuple[float, ...]:
    """Return since when the loop keeps each slot paused (CLOCK_MONOTONIC); 0 if it does not."""
    return tuple(_kept_since(memory, slot)[0] for slot in range(slots))


def longest_pauses(memory: memoryview, slots: int) -> tuple[float, ...]:
    """Return the longest pause that the pod of each slot allows, in seconds, or infinity."""
    return tuple(_longest(memory, slot)[0] or math.inf for slot in range(slots))


def _kept_since(memory: memoryview | bytearray, slot: int) -> memoryview[float]:
    """Return the place of one number, which is aligned so that it is read and written at once."""
    end = (slot + 1) * SLOT_BYTES
    return memoryview(memory)[end - _KEPT_SINCE_BYTES : end].cast("d")


def _longest(memory: memoryview | bytearray, slot: int) -> memoryview[float]:
    """Return the place of the longest pause of a slot, just before that of its begin."""
    end = (slot + 1) * SLOT_BYTES - _KEPT_SINCE_BYTES
    return memoryview(memory)[end - _LONGEST_BYTES : end].cast("d")


def _encode(number: int, history: PauseHistory) -> bytes:
    pauses = history.pauses
    excess = len(pauses) - MAX_PAUSES
    if excess > 0:
        pauses = ((pauses[0][0], pauses[excess][1]), *pauses[excess + 1 :])
    head = _HEAD.pack(0, number, len(pauses), _or_nan(history.since_s), _or_nan(history.thawed_s))
    body = head[_CRC_BYTES:] + b"".join(_PAUSE.pack(*pause) for pause in pauses)
    return zlib.crc32(body).to_bytes(_CRC_BYTES, "little") + body


def _decode(data: bytes) -> tuple[int, PauseHistory | None]:
    """Return a record's number and history; -1 and ``None`` if it is torn or was never written."""
    crc, number, count, since_s, thawed_s = _HEAD.unpack_from(data)
    end = _HEAD.size + count * _PAUSE.size
    if not number or count > MAX_PAUSES or zlib.crc32(data[_CRC_BYTES:end]) != crc:
        return -1, None
    pauses = tuple(_PAUSE.iter_unpack(data[_HEAD.size : end]))
    return number, PauseHistory(
        since_s=_or_none(since_s), thawed_s=_or_none(thawed_s), pauses=_pairs(pauses)
    )


def _pairs(numbers: Sequence[tuple[float, ...]]) -> tuple[tuple[float, float], ...]:
    return tuple((begin_s, end_s) for begin_s, end_s in numbers)


def _or_nan(time_s: float | None) -> float:
    return math.nan if time_s is None else time_s


def _or_none(time_s: float) -> float | None:
    return None if math.isnan(time_s) else time_s


PLACES: Final = 8192
"""How many originals can be noted; any more are restored as if each had been changed."""
_TOUCHED: Final = 1
_WRITTEN: Final = struct.Struct("@QQ")
"""The numbers of two values. In the machine's own order each is stored by one instruction."""
TABLE_BYTES: Final = PLACES * (1 + _WRITTEN.size)
"""The size of the marks and of the values that were written."""
_NAMES_BYTES: Final = 8
"""The size of the checksum of the slots' names, at the end of the memory."""


class SharedMemory:
    """The shared memory of one daemon, as its guardian and its loop see it.

    Args:
        fd: A file of :func:`memory_bytes` to map; the caller keeps and closes the descriptor.
        named: Whether it is a file beside the journal, which the next daemon finds.
    """

    def __init__(self, fd: int, *, named: bool = False) -> None:
        self.fd = fd
        self.named = named
        self._map = mmap.mmap(fd, 0)

    @classmethod
    def make(cls, journal: Path, paths: Paths, slots: Sequence[str]) -> SharedMemory:
        """Make new memory, with nothing touched; a file beside a journal that is on a tmpfs.

        It keeps the pauses that a dead daemon left there, if that had the same slots.

        Args:
            journal: The journal's file.
            paths: The kernel's files.
            slots: The unique name of each slot, in order.

        Raises:
            OSError: If there is no memory.
        """
        size = memory_bytes(len(slots))
        checksum = zlib.crc32("\0".join(slots).encode()).to_bytes(_NAMES_BYTES, "little")
        old = _read_trusted(touch_path(journal), size) or b""
        pauses = old[TABLE_BYTES:-_NAMES_BYTES] if old.endswith(checksum) else b""
        fd = -1
        if _on_tmpfs(journal.parent, paths):
            with contextlib.suppress(OSError):  # e.g. it is full
                fd = _make_file(touch_path(journal), size)
        named = fd >= 0
        if not named:
            remove_touched(journal)
            fd = os.memfd_create("loop-memory")
            os.truncate(fd, size)
        os.pwrite(fd, pauses, TABLE_BYTES)
        os.pwrite(fd, checksum, size - _NAMES_BYTES)
        return cls(fd, named=named)

    def touch(self, place: int, values: Sequence[str] = ()) -> None:
        """Mark the entry at ``place`` as one to undo from now on.

        Args:
            place: The place of the entry.
            values: The value in force and the one that will be written; without them the original
                is put back whatever the value is then.
        """
        _WRITTEN.pack_into(self._map, _written_at(place), *numbers_of(values))
        self._map[place] = _TOUCHED

    def settle(self, place: int) -> None:
        """Mark the entry at ``place`` as restored."""
        self._map[place] = 0

    def settle_all(self, *, but: Iterable[int] = ()) -> None:
        """Mark every entry as restored, apart from those at the places ``but``."""
        marks = bytearray(PLACES)
        for place in but:
            if place < PLACES:
                marks[place] = self._map[place]
        self._map[:PLACES] = bytes(marks)

    def in_force(self, entries: Iterable[JournalEntry]) -> tuple[JournalEntry, ...]:
        """Return those of ``entries`` that must be undone now."""
        return in_force(entries, self._map[:TABLE_BYTES])

    def pauses(self) -> memoryview:
        """The part that holds the slots' pauses."""
        return memoryview(self._map)[TABLE_BYTES:]


def memory_bytes(slots: int) -> int:
    """Return the size of the memory of a daemon with ``slots`` slots."""
    return TABLE_BYTES + slots * SLOT_BYTES + _NAMES_BYTES


def in_force(entries: Iterable[JournalEntry], touched: bytes | None) -> tuple[JournalEntry, ...]:
    """Return those of ``entries`` that must be undone.

    Args:
        entries: The entries of a journal.
        touched: The touch table; without one, ``None``, all entries must be undone.
    """
    return tuple(
        _with_written(entry, touched)
        for entry in entries
        if not isinstance(entry, Noted)
        or touched is None
        or entry.place >= min(len(touched), PLACES)
        or touched[entry.place]
    )


def _written_at(place: int) -> int:
    return PLACES + place * _WRITTEN.size


def _with_written(entry: JournalEntry, touched: bytes | None) -> JournalEntry:
    if touched is None or len(touched) < TABLE_BYTES:
        return entry
    if not isinstance(entry, Noted) or entry.place >= PLACES:
        return entry
    return replace(entry, written=_WRITTEN.unpack_from(touched, _written_at(entry.place)))


def touch_path(journal: Path) -> Path:
    """Return the file of the memory that belongs to a journal, if it has a name."""
    return journal.with_name(f"{journal.name}.touched")


def read_touched(journal: Path) -> bytes | None:
    """Return the touch table that a dead daemon left beside its journal, if it left one."""
    return _read_trusted(touch_path(journal), TABLE_BYTES)


def _read_trusted(path: Path, size: int) -> bytes | None:
    """Read ``size`` bytes of a file, unless another user may have written it."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        status = os.fstat(fd)
        trusted = status.st_uid in {0, os.geteuid()} and not status.st_mode & 0o022
        if not stat.S_ISREG(status.st_mode) or not trusted:
            return None
        content = os.pread(fd, size, 0)
        return content if len(content) == size else None
    except OSError:
        return None
    finally:
        os.close(fd)


def close_journal(journal: Journal) -> None:
    """Clear the journal of a dead daemon after a restore, but leave a sign that there was one.

    The next daemon finds the pauses in the memory's file. Without that file it finds an empty
    journal, and assumes as much pausing as the budgets allow.

    Raises:
        JournalError: If the journal cannot be emptied.
    """
    try:
        flags = os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        fd = os.open(touch_path(journal.path), flags)
    except OSError:
        journal.empty()
        return
    journal.clear()
    try:
        os.pwrite(fd, bytes(PLACES), 0)
    except OSError:  # without entries in the journal the table has no effect
        pass
    finally:
        os.close(fd)


def remove_touched(journal: Path) -> None:
    """Remove the file of the memory beside a journal."""
    with contextlib.suppress(OSError):
        touch_path(journal).unlink(missing_ok=True)


def _make_file(path: Path, size: int) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    fd = os.open(path, flags, 0o600)
    try:
        # Storing to a page that a full tmpfs cannot provide would kill this process.
        os.posix_fallocate(fd, 0, size)
    except OSError:
        os.close(fd)
        path.unlink(missing_ok=True)
        raise
    return fd


def _on_tmpfs(folder: Path, paths: Paths) -> bool:
    """Return whether a folder, or its nearest parent that exists, is on a tmpfs."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        device = folder.stat().st_dev
    except OSError:
        return False
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in (read_text(paths.proc / "self" / "mountinfo") or "").splitlines():
        mount, _, kind = line.partition(" - ")
        if mount.split()[2:3] == [number]:
            return kind.split()[:1] == ["tmpfs"]
    return False
