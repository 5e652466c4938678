"""The memory controller's files of one group, v1 or v2.

Everything counts the group with all groups below it: the sandbox is a parent. On v1 that is
what the ``total_`` lines of memory.stat say.

What needs swap to be reclaimed is ``anon_bytes`` (anonymous pages and shared memory); what can
be dropped or written back is ``file_bytes`` (page cache without shared memory).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from stallward.actuator.sensors.flat import checked_count, count_of, parse_flat, parse_single
from stallward.actuator.sensors.signal_file import AnySignal, SignalFile

_V1_UNLIMITED_BYTES: Final = 1 << 62
"""v1 shows "no limit" as 2^63 less a page, whose size varies."""


@dataclass(slots=True, kw_only=True)
class GroupMemory:
    """Memory of one group, filled in file by file; absent values are ``None``."""

    usage_bytes: int | None = None
    limit_bytes: int | None = None
    anon_bytes: int | None = None
    file_bytes: int | None = None
    inactive_file_bytes: int | None = None
    swap_bytes: int | None = None
    dirty_bytes: int | None = None
    writeback_bytes: int | None = None
    refault_file_pages: int | None = None
    refault_anon_pages: int | None = None
    major_faults: int | None = None
    oom_kills: int | None = None


def parse_limit_v1(content: bytes, path: Path) -> int | None:
    """memory.limit_in_bytes; ``None`` means no limit.

    Raises:
        SensorError: If it is malformed.
    """
    value = parse_single(content, path)
    return None if value is None or value >= _V1_UNLIMITED_BYTES else value


def _less(whole: int | None, part: int | None) -> int | None:
    """``whole`` without ``part``; the kernel updates them one after the other."""
    return None if whole is None else max(whole - (part or 0), 0)


def _plus(one: int | None, other: int | None, path: Path) -> int | None:
    return other if one is None else checked_count(one + (other or 0), path)


def parse_stat_v1(content: bytes, path: Path) -> GroupMemory:
    """memory.stat of v1; swap is absent where the kernel does not account it.

    Raises:
        SensorError: If it is malformed or cut short.
    """
    table = parse_flat(content, path)
    shared = count_of(table, b"total_shmem", path)
    file_refaults = count_of(table, b"total_workingset_refault_file", path)
    if file_refaults is None:
        file_refaults = count_of(table, b"total_workingset_refault", path)
    return GroupMemory(
        anon_bytes=_plus(count_of(table, b"total_rss", path), shared, path),
        file_bytes=_less(count_of(table, b"total_cache", path), shared),
        inactive_file_bytes=count_of(table, b"total_inactive_file", path),
        swap_bytes=count_of(table, b"total_swap", path),
        dirty_bytes=count_of(table, b"total_dirty", path),
        writeback_bytes=count_of(table, b"total_writeback", path),
        refault_file_pages=file_refaults,
        refault_anon_pages=count_of(table, b"total_workingset_refault_anon", path),
        major_faults=count_of(table, b"total_pgmajfault", path),
    )


def parse_stat_v2(content: bytes, path: Path) -> GroupMemory:
    """memory.stat of v2.

    Raises:
        SensorError: If it is malformed or cut short.
    """
    table = parse_flat(content, path)
    shared = count_of(table, b"shmem", path)
    file_refaults = count_of(table, b"workingset_refault_file", path)
    if file_refaults is None:
        file_refaults = count_of(table, b"workingset_refault", path)
    return GroupMemory(
        anon_bytes=_plus(count_of(table, b"anon", path), shared, path),
        file_bytes=_less(count_of(table, b"file", path), shared),
        inactive_file_bytes=count_of(table, b"inactive_file", path),
        dirty_bytes=count_of(table, b"file_dirty", path),
        writeback_bytes=count_of(table, b"file_writeback", path),
        refault_file_pages=file_refaults,
        refault_anon_pages=count_of(table, b"workingset_refault_anon", path),
        major_faults=count_of(table, b"pgmajfault", path),
    )


def parse_oom_kills(content: bytes, path: Path) -> int | None:
    """``oom_kill`` of v1 memory.oom_control or v2 memory.events (absent before kernel 4.13).

    v1 counts the group's own kills only, v2 those of all groups below it too.

    Raises:
        SensorError: If it is malformed.
    """
    return count_of(parse_flat(content, path), b"oom_kill", path)


class MemoryReader:
    """The memory files of one group, kept open.

    Args:
        folder: The group's directory in the hierarchy that has the memory controller.
        v2: Whether that is a v2 hierarchy.
    """

    def __init__(self, folder: Path, *, v2: bool) -> None:
        def single(name: str) -> SignalFile[int | None]:
            return SignalFile(folder / name, parse_single, None)

        parse_stat = parse_stat_v2 if v2 else parse_stat_v1
        self._stat = SignalFile(folder / "memory.stat", parse_stat, GroupMemory())
        kills = "memory.events" if v2 else "memory.oom_control"
        self._kills = SignalFile(folder / kills, parse_oom_kills, None)
        self.usage = single("memory.current" if v2 else "memory.usage_in_bytes")
        limits = ("memory.max", "memory.high") if v2 else ("memory.limit_in_bytes",)
        parse_limit = parse_single if v2 else parse_limit_v1
        self.limits = tuple(SignalFile(folder / name, parse_limit, None) for name in limits)
        self._swap = single("memory.swap.current") if v2 else None  # v1 has it in memory.stat

    @property
    def signals(self) -> tuple[AnySignal, ...]:
        """Every file."""
        swap = () if self._swap is None else (self._swap,)
        return (self._stat, self._kills, self.usage, *self.limits, *swap)

    def read(self) -> GroupMemory:
        """The present values; all ``None`` if the group is not there."""
        stat = self._stat.read()
        limits = [limit.read() for limit in self.limits]
        return replace(
            stat,
            usage_bytes=self.usage.read(),
            limit_bytes=min((limit for limit in limits if limit is not None), default=None),
            swap_bytes=stat.swap_bytes if self._swap is None else self._swap.read(),
            oom_kills=self._kills.read(),
        )
