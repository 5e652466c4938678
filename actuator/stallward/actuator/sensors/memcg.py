"""The memory controller's files of one group, v1 or v2.

Everything counts the group with all groups below it: the sandbox is a parent. On v1 that is
what the ``total_`` lines of memory.stat say.

What needs swap to be reclaimed is ``anon_bytes`` (anonymous pages and shared memory); what can
be dropped or written back is ``file_bytes`` (page cache without shared memory).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stallward.actuator.errors import SensorError
from stallward.actuator.kernelfile import OpenFile
from stallward.actuator.sensors.flat import count_of, parse_flat, parse_single

_V1_UNLIMITED_BYTES: Final = 1 << 62
"""v1 shows "no limit" as 2^63 less a page, whose size varies."""

_V1_FILES: Final = (
    "memory.stat",
    "memory.usage_in_bytes",
    "memory.limit_in_bytes",
    "memory.oom_control",
)
_V2_FILES: Final = (
    "memory.stat",
    "memory.current",
    "memory.max",
    "memory.high",
    "memory.swap.current",
    "memory.events",
)


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


def _plus(one: int | None, other: int | None) -> int | None:
    return other if one is None else one + (other or 0)


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
        anon_bytes=_plus(count_of(table, b"total_rss", path), shared),
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
        anon_bytes=_plus(count_of(table, b"anon", path), shared),
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
        self._v2 = v2
        names = _V2_FILES if v2 else _V1_FILES
        self._files = {name: OpenFile(folder / name, SensorError) for name in names}

    def _single(self, name: str) -> int | None:
        content = self._files[name].read()
        return None if content is None else parse_single(content, self._files[name].path)

    def read(self) -> GroupMemory:
        """The present values; all ``None`` if the group is not there.

        Raises:
            SensorError: If a file is there but cannot be understood.
        """
        file = self._files["memory.stat"]
        content = file.read()
        parse = parse_stat_v2 if self._v2 else parse_stat_v1
        memory = GroupMemory() if content is None else parse(content, file.path)
        kills_file = self._files["memory.events" if self._v2 else "memory.oom_control"]
        kills = kills_file.read()
        if kills is not None:
            memory.oom_kills = parse_oom_kills(kills, kills_file.path)
        if self._v2:
            limits = (self._single("memory.max"), self._single("memory.high"))
            memory.limit_bytes = min((v for v in limits if v is not None), default=None)
            memory.usage_bytes = self._single("memory.current")
            memory.swap_bytes = self._single("memory.swap.current")
        else:
            content = self._files["memory.limit_in_bytes"].read()
            if content is not None:
                path = self._files["memory.limit_in_bytes"].path
                memory.limit_bytes = parse_limit_v1(content, path)
            memory.usage_bytes = self._single("memory.usage_in_bytes")
        return memory

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()
