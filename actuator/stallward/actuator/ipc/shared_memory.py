"""Memory that the guardian shares with its loop, and that outlives the loop.

What is written here costs no message and no wait, and is there whatever happens to the writer
afterwards: a byte stored before a write to the kernel is seen by whoever restores. It holds the
*touch table*, one byte for each original that the journal has noted (whether it is being moved),
and behind that the slots' pauses (:mod:`stallward.actuator.ipc.pause_memory`).

Where the journal is on a tmpfs, this is a file beside it and outlives the guardian too: the pauses
in it are the next daemon's to go on from. Storing to a page of a file on a disk may wait for that
disk, so elsewhere it is memory without a name.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import stat
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from stallward.actuator.ipc.pause_memory import SLOT_BYTES
from stallward.actuator.journal.disk import Journal
from stallward.actuator.journal.entries import JournalEntry, Noted
from stallward.actuator.kernel.files import read_text
from stallward.actuator.kernel.paths import Paths

PLACES: Final = 8192
"""Originals that can be noted; those beyond are held as if each had been moved."""
_TOUCHED: Final = 1
_NAMES_BYTES: Final = 8
"""At the end: whose slots these are, a checksum."""


class SharedMemory:
    """The memory of one daemon, as its guardian and its loop see it.

    Args:
        fd: A file of :func:`memory_bytes`, mapped here; it stays the caller's.
        named: Whether it is a file beside the journal, which the next daemon finds.
    """

    def __init__(self, fd: int, *, named: bool = False) -> None:
        self.fd = fd
        self.named = named
        self._map = mmap.mmap(fd, 0)

    @classmethod
    def make(cls, journal: Path, paths: Paths, slots: Sequence[str]) -> SharedMemory:
        """New memory, with nothing touched; a file beside the journal where that is on a tmpfs.

        The pauses are those that a dead daemon has left there of the same slots, if it has.

        Args:
            journal: The journal's file.
            paths: The kernel's files.
            slots: What tells each slot from any other, in order.

        Raises:
            OSError: If there is no memory.
        """
        size = memory_bytes(len(slots))
        names = zlib.crc32("\0".join(slots).encode()).to_bytes(_NAMES_BYTES, "little")
        old = _read_trusted(touch_path(journal), size) or b""
        pauses = old[PLACES:-_NAMES_BYTES] if old.endswith(names) else b""
        fd = -1
        if _on_tmpfs(journal.parent, paths):
            with contextlib.suppress(OSError):  # full, for example
                fd = _make_file(touch_path(journal), size)
        named = fd >= 0
        if not named:
            remove_touched(journal)
            fd = os.memfd_create("loop-memory")
            os.truncate(fd, size)
        os.pwrite(fd, pauses, PLACES)
        os.pwrite(fd, names, size - _NAMES_BYTES)
        return cls(fd, named=named)

    def touch(self, place: int) -> None:
        """What is noted at ``place`` is to be undone from now on."""
        self._map[place] = _TOUCHED

    def settle(self, place: int) -> None:
        """What is noted at ``place`` is as it was."""
        self._map[place] = 0

    def settle_all(self) -> None:
        """Nothing is touched any more."""
        self._map[:PLACES] = bytes(PLACES)

    def in_force(self, entries: Iterable[JournalEntry]) -> tuple[JournalEntry, ...]:
        """Those of ``entries`` that are to be undone now."""
        return in_force(entries, self._map[:PLACES])

    def pauses(self) -> memoryview:
        """The part that holds the slots' pauses."""
        return memoryview(self._map)[PLACES:]


def memory_bytes(slots: int) -> int:
    """The size of the memory of a daemon with so many slots."""
    return PLACES + slots * SLOT_BYTES + _NAMES_BYTES


def in_force(entries: Iterable[JournalEntry], touched: bytes | None) -> tuple[JournalEntry, ...]:
    """Those of ``entries`` that are to be undone.

    Args:
        entries: What a journal holds.
        touched: The touch table; ``None`` if there is none, so that all must be.
    """
    return tuple(
        entry
        for entry in entries
        if not isinstance(entry, Noted)
        or touched is None
        or entry.place >= len(touched)
        or touched[entry.place]
    )


def touch_path(journal: Path) -> Path:
    """Where the memory is that belongs to a journal, if it has a name."""
    return journal.with_name(f"{journal.name}.touched")


def read_touched(journal: Path) -> bytes | None:
    """The touch table that a dead daemon left beside its journal, if it left one."""
    return _read_trusted(touch_path(journal), PLACES)


def _read_trusted(path: Path, size: int) -> bytes | None:
    """So many bytes of a file that nobody else may have written."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        found = os.fstat(fd)
        trusted = found.st_uid in {0, os.geteuid()} and not found.st_mode & 0o022
        if not stat.S_ISREG(found.st_mode) or not trusted:
            return None
        content = os.pread(fd, size, 0)
        return content if len(content) == size else None
    except OSError:
        return None
    finally:
        os.close(fd)


def close_journal(journal: Journal) -> None:
    """Forget what a dead daemon's journal holds, which is undone, but not that there was one.

    The next daemon finds the pauses in the memory's file; where that has no name it finds an
    empty journal, and takes the past for the worst that the budgets allow.

    Raises:
        JournalError: If the journal cannot be emptied.
    """
    try:
        fd = os.open(touch_path(journal.path), os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        journal.empty()
        return
    journal.clear()
    try:
        os.pwrite(fd, bytes(PLACES), 0)
    except OSError:  # without entries it says nothing
        pass
    finally:
        os.close(fd)


def remove_touched(journal: Path) -> None:
    """Remove the memory beside a journal; nobody needs it any more."""
    with contextlib.suppress(OSError):
        touch_path(journal).unlink(missing_ok=True)


def _make_file(path: Path, size: int) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    fd = os.open(path, flags, 0o600)
    try:
        # Storing to a page that a full tmpfs cannot give would kill.
        os.posix_fallocate(fd, 0, size)
    except OSError:
        os.close(fd)
        path.unlink(missing_ok=True)
        raise
    return fd


def _on_tmpfs(folder: Path, paths: Paths) -> bool:
    """Whether a folder, or the nearest one above it that there is, is on a tmpfs."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        device = folder.stat().st_dev
    except OSError:
        return False
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in (read_text(paths.proc / "self" / "mountinfo") or "").splitlines():
        mount, _, kind = line.partition(" - ")
        if mount.split()[2:3] == [wanted]:
            return kind.split()[:1] == ["tmpfs"]
    return False
