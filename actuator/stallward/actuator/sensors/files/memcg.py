"""The memory controller's files of one group, v1 or v2.

All counters include the groups below, since a sandbox is a parent of groups. On v1 these are the
``total_`` lines of memory.stat.

``anon_bytes`` (anonymous pages and shared memory) needs swap to be reclaimed; ``file_bytes`` (page
cache without shared memory) can be dropped or written back.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from stallward.actuator.errors import KernelFileError, PartlyReadError
from stallward.actuator.kernel.files import read_text
from stallward.actuator.sensors.files.flat import (
    MAX_COUNT,
    AnySignal,
    FlatParser,
    SignalFile,
    flat_counts,
    is_count,
    parse_single,
    without_lost,
)

# ---------- How much of a group's memory may still go to swap, by the limits of groups (v2)
# Kubernetes allows containers no swap by default: their runtime writes 0 to ``memory.swap.max`` of
# each container's group, below that of the pod. So the groups directly inside a group count as well
# as the group itself and those around it.

RESCAN_S: Final = 2.0
"""How often the limits are read again, and the groups inside listed."""
_DIGITS: Final = 19
"""The kernel counts pages in 63 bits."""
_MOST_INSIDE: Final = 64
"""If there are more groups inside, they are not looked at."""


class SwapRoom:
    """Reads the room of one group.

    Where no limit is set, as on most nodes, or it is 0, as in most pods, only rescans read files.

    Args:
        root: The root of the v2 hierarchy.
        group: The group's folder.
    """

    def __init__(self, root: Path, group: Path) -> None:
        around = [group, *group.parents]
        self._chain = tuple(around[: around.index(root)]) if root in around else ()
        self._group = group
        self._due_s = float("-inf")
        self._limits: dict[Path, int] = {}
        """The limit of each group around, and of the group itself, that has one."""
        self._inside: dict[Path, int | None] = {}
        """The limit of each group inside; empty if none of them has one."""

    def read(self, now_s: float) -> int | None:
        """Read how many bytes may still go to swap; ``None`` if no limit is set, or none is known.

        Args:
            now_s: The time now (CLOCK_MONOTONIC).
        """
        if now_s >= self._due_s:
            self._scan()
            self._due_s = now_s + RESCAN_S
        rooms = [_left(folder, limit) for folder, limit in self._limits.items()]
        if self._inside:
            rooms.append(sum(_swappable(path, limit) for path, limit in self._inside.items()))
        return min(rooms, default=None)

    def _scan(self) -> None:
        """Read all limits."""
        limits = {folder: _limit(folder) for folder in self._chain}
        self._limits = {folder: limit for folder, limit in limits.items() if limit is not None}
        inside = {folder: _limit(folder) for folder in _folders(self._group)}
        limited = any(limit is not None for limit in inside.values())
        self._inside = inside if limited else {}


def _folders(group: Path) -> list[Path]:
    try:
        with os.scandir(group) as entries:
            folders = (entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
            found = [Path(path) for path in islice(folders, _MOST_INSIDE + 1)]
    except OSError:
        return []
    return found if len(found) <= _MOST_INSIDE else []


def _limit(folder: Path) -> int | None:
    """The limit of one group; ``None`` if it has none, or cannot be read."""
    return _number(folder / "memory.swap.max")


def _number(path: Path) -> int | None:
    try:
        text = read_text(path) or ""
    except KernelFileError:
        return None
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS else None


def _left(folder: Path, limit: int) -> int:
    """How much of its limit a group has left."""
    return 0 if limit == 0 else max(limit - (_number(folder / "memory.swap.current") or 0), 0)


def _swappable(folder: Path, limit: int | None) -> int:
    """How much of the memory of a group inside may go to swap: no more than it uses."""
    if limit == 0:
        return 0
    used = _number(folder / "memory.current") or 0
    return used if limit is None else min(used, _left(folder, limit))


_V1_UNLIMITED_BYTES: Final = 1 << 62
"""v1 shows "no limit" as 2^63 less a page, whose size varies."""
_V1_MOST_BYTES: Final = 2**64 - 1
"""What kernels before 3.19 show for "no limit"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMemory:
    """The memory.stat of one group; absent values are ``None``."""

    anon_bytes: int | None = None
    file_bytes: int | None = None
    inactive_file_bytes: int | None = None
    swap_bytes: int | None = None
    """The memory in swap, on v1 only; v2 has another file for it."""
    dirty_bytes: int | None = None
    writeback_bytes: int | None = None
    refault_file_pages: int | None = None
    refault_anon_pages: int | None = None
    major_faults: int | None = None
    reclaimed_pages: int | None = None
    """Pages ever evicted; v2 only."""
    scanned_pages: int | None = None
    """Pages that reclaim ever looked at; v2 only."""
    compressed_bytes: int | None = None
    """What zswap takes for the group's swapped pages; it is part of the usage. v2 only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEvents:
    """How often a group reached its limits; absent values are ``None``."""

    oom_kills: int | None = None
    high_events: int | None = None
    max_events: int | None = None


_ANON: Final = ("anon_bytes",)
_FILE: Final = ("file_bytes",)
_DERIVED: Final = {
    b"workingset_refault_file": ("refault_file_pages",),
    b"workingset_refault_anon": ("refault_anon_pages",),
    # The key before kernel 5.9, which counted no refaults of anonymous pages.
    b"workingset_refault": (),
    b"pgmajfault": ("major_faults",),
}
_V1: Final = {
    b"total_" + key: names
    for key, names in {
        b"rss": _ANON,
        b"cache": _FILE,
        b"shmem": _ANON + _FILE,
        b"inactive_file": ("inactive_file_bytes",),
        b"swap": ("swap_bytes",),
        b"dirty": ("dirty_bytes",),
        b"writeback": ("writeback_bytes",),
        **_DERIVED,
    }.items()
}
_V2: Final = {
    b"anon": _ANON,
    b"file": _FILE,
    b"shmem": _ANON + _FILE,
    b"inactive_file": ("inactive_file_bytes",),
    b"pgsteal": ("reclaimed_pages",),
    b"file_dirty": ("dirty_bytes",),
    b"file_writeback": ("writeback_bytes",),
    **_DERIVED,
    b"pgscan": ("scanned_pages",),
    b"zswap": ("compressed_bytes",),
}
"""The counters of the file, in the order in which they are taken, each with the fields that need
it."""
_EVENTS: Final = {
    b"oom_kill": ("oom_kills",),
    b"high": ("high_events",),
    b"max": ("max_events",),
}


def parse_limit_v1(content: bytes, path: Path) -> int | None:
    """Parse memory.limit_in_bytes; ``None`` means no limit.

    Raises:
        SensorError: If the content is malformed.
    """
    digits = content.removesuffix(b"\n")
    if digits != content and is_count(digits, _V1_MOST_BYTES) and int(digits) > MAX_COUNT:
        return None
    value = parse_single(content, path)
    return None if value is None or value >= _V1_UNLIMITED_BYTES else value


def _less(whole: int | None, part: int | None) -> int | None:
    """Return ``whole - part``, at least 0: the kernel updates them one after the other."""
    return None if whole is None else max(whole - (part or 0), 0)


def _plus(one: int | None, other: int | None) -> int | None:
    return other if one is None else one + (other or 0)


def stat_parser(*, v2: bool) -> FlatParser[GroupMemory]:
    """Make a parser of memory.stat; on v1, swap is absent where the kernel does not account it.

    Args:
        v2: Whether the file is that of v2.
    """
    return FlatParser(_V2 if v2 else _V1, _memory_v2 if v2 else _memory_v1)


def _memory_v1(counts: list[int | None]) -> GroupMemory:
    return _memory(counts, swap_bytes=counts[4])


def _memory_v2(counts: list[int | None]) -> GroupMemory:
    return _memory(
        counts,
        reclaimed_pages=counts[4],
        scanned_pages=counts[11],
        compressed_bytes=counts[12],
    )


def _memory(counts: list[int | None], **own: int | None) -> GroupMemory:
    """Make the value of what both files have in the same places, and what one has of its own."""
    anon, file, shared, inactive, _, dirty, writeback, refault_file = counts[:8]
    refault_anon, old_refaults, major_faults = counts[8:11]
    return GroupMemory(
        anon_bytes=_plus(anon, shared),
        file_bytes=_less(file, shared),
        inactive_file_bytes=inactive,
        dirty_bytes=dirty,
        writeback_bytes=writeback,
        refault_file_pages=old_refaults if refault_file is None else refault_file,
        refault_anon_pages=refault_anon,
        major_faults=major_faults,
        **own,
    )


def parse_oom_control_v1(content: bytes, path: Path) -> int | None:
    """Parse ``oom_kill`` of v1 memory.oom_control (absent before kernel 4.13).

    It does not include the groups below.

    Raises:
        SensorError: If the content is malformed.
    """
    (kills,) = flat_counts(content, (b"oom_kill",), path)
    return kills


def parse_events_v2(content: bytes, path: Path) -> MemoryEvents:
    """Parse memory.events of v2, which includes the groups below.

    Raises:
        PartlyReadError: If some of its counters cannot be known.
        SensorError: If the content is malformed.
    """
    try:
        return _events(flat_counts(content, tuple(_EVENTS), path))
    except PartlyReadError as error:
        raise without_lost(error, _events, _EVENTS) from error


def _events(counts: list[int | None]) -> MemoryEvents:
    return MemoryEvents(oom_kills=counts[0], high_events=counts[1], max_events=counts[2])


class MemoryReader:
    """The memory files of one group, kept open.

    Args:
        folder: The group's directory in the hierarchy that has the memory controller.
        v2: Whether that is a v2 hierarchy.
    """

    def __init__(self, folder: Path, *, v2: bool) -> None:
        def single(name: str) -> SignalFile[int | None]:
            return SignalFile(folder / name, parse_single, None)

        self.stat = SignalFile(
            folder / "memory.stat", stat_parser(v2=v2), GroupMemory(), one_piece=True
        )
        self.usage = single("memory.current" if v2 else "memory.usage_in_bytes")
        limits = ("memory.max", "memory.high") if v2 else ("memory.limit_in_bytes",)
        parse_limit = parse_single if v2 else parse_limit_v1
        self.limits = tuple(SignalFile(folder / name, parse_limit, None) for name in limits)
        self._swap = single("memory.swap.current") if v2 else None  # v1 has it in memory.stat
        self._events: SignalFile[MemoryEvents] | None = None
        self._kills = self._fails = None
        if v2:
            self._events = SignalFile(folder / "memory.events", parse_events_v2, MemoryEvents())
        else:
            self._kills = SignalFile(folder / "memory.oom_control", parse_oom_control_v1, None)
            self._fails = single("memory.failcnt")
        self._v1_counts: tuple[int | None, int | None] = (None, None)
        self._v1_events = MemoryEvents()

    @property
    def signals(self) -> tuple[AnySignal, ...]:
        """All files."""
        further = (self._swap, self._events, self._kills, self._fails)
        present = (signal for signal in further if signal is not None)
        return (self.stat, self.usage, *self.limits, *present)

    def read_limit_bytes(self) -> int | None:
        """Read the lowest limit in force; ``None`` if there is no limit."""
        lowest: int | None = None
        for file in self.limits:
            limit = file.read()
            if limit is not None and (lowest is None or limit < lowest):
                lowest = limit
        return lowest

    def read_swap_bytes(self) -> int | None:
        """Read the memory in swap; on v1 it comes from the last read of memory.stat.

        On v2 the usage includes what zswap takes for it, which goes when the pages come back. So
        that is left out here: usage and swap together are what the group needs without swap.
        """
        stat = self.stat.value
        if self._swap is None:
            return stat.swap_bytes
        return _less(self._swap.read(), stat.compressed_bytes)

    def read_events(self) -> MemoryEvents:
        """Read how often the group reached its limits."""
        if self._events is not None:
            return self._events.read()
        if self._kills is None or self._fails is None:
            return MemoryEvents()
        counts = (self._kills.read(), self._fails.read())
        if counts != self._v1_counts:
            self._v1_counts = counts
            self._v1_events = MemoryEvents(oom_kills=counts[0], max_events=counts[1])
        return self._v1_events
