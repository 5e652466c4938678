"""Memory that the guardian shares with its loop, and that outlives the loop.

A write to it needs no message and no wait, and it stays whatever happens to the writer: a byte
that is stored before a setting is changed is seen by the process that restores. The memory holds
the *touch table*, one byte for each original that the journal has noted (whether the setting may
be changed), then for each of them what was written last
(:mod:`stallward.actuator.journal.written_values`), and then the pauses of the slots
(:mod:`stallward.actuator.ipc.pause_memory`).

Where the journal is on a tmpfs, the memory is a file beside it and outlives the guardian, too: the
next daemon continues from the pauses in it. Elsewhere it is memory without a name, because storing
to a page of a file on a disk may have to wait for that disk.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import stat
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from stallward.actuator.ipc.pause_memory import SLOT_BYTES
from stallward.actuator.journal.disk import Journal
from stallward.actuator.journal.entries import JournalEntry, Noted
from stallward.actuator.journal.written_values import numbers_of
from stallward.actuator.kernel.files import read_text
from stallward.actuator.kernel.paths import Paths

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
