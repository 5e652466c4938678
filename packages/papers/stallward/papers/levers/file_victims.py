"""Which process's file pages are acted on: candidates are read from /proc, the choice is pure.

The rules are those of the kernel patches in the Birkbeck thesis (sections 6.2 to 7.5), as far as
user space sees what the kernel does: see docs/explanation/working-set.md.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stallward.actuator.errors import KernelFileError
from stallward.actuator.kernel.files import ABSENT, failure, read_bytes
from stallward.actuator.kernel.memory.mappings import Mapping, mappings
from stallward.actuator.kernel.process_table import stat_fields
from stallward.agent.file_pages import Victim
from stallward.papers.levers.file_cache import cached_pages

_RUNNABLE: Final = b"R"
_STATE, _UTIME, _STIME, _START, _VSIZE = 0, 11, 12, 19, 20
"""Positions of state, user and system time, start time and size in /proc/PID/stat, of the fields
from the third on."""
_FIRST_BYTES: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One process whose file pages may be acted on."""

    pid: int
    start_time_ticks: int
    size_bytes: int
    """Its address space, ``total_vm`` in the kernel."""
    cpu_ticks: int
    """The processor time it has had, all threads together."""
    runnable: bool
    """Whether it runs or waits for a processor."""
    file: tuple[bytes, int] | None = None
    """Device and inode of the file behind its first mapping, where that was looked up."""
    cached_pages: int = 0
    """The pages of that file in the page cache."""


def read_candidate(proc: Path, pid: int, *, with_file: bool) -> Candidate | None:
    """Read one process.

    Args:
        proc: The /proc directory.
        pid: The process.
        with_file: Whether to count the cached pages of the file behind its first mapping.

    Returns:
        The process; ``None`` if it has ended or has no memory of its own.

    Raises:
        KernelFileError: If a file of it cannot be read or understood.
    """
    path = proc / str(pid) / "stat"
    content = read_bytes(path)
    if not content:
        return None
    fields = stat_fields(content, path)
    try:
        user, system, start, size = (int(fields[i]) for i in (_UTIME, _STIME, _START, _VSIZE))
    except ValueError as error:
        raise KernelFileError(path, f"not a process's stat: {content[:80]!r}") from error
    if size <= 0:
        return None
    file, cached = None, 0
    if with_file:
        first = first_mapping(proc, pid)
        file = None if first is None else first.file
        if first is not None and file is not None:
            cached = _cached(proc, pid, first)
    return Candidate(
        pid=pid,
        start_time_ticks=start,
        size_bytes=size,
        cpu_ticks=user + system,
        runnable=fields[_STATE] == _RUNNABLE,
        file=file,
        cached_pages=cached,
    )


def first_mapping(proc: Path, pid: int) -> Mapping | None:
    """Return the first mapping of a process; ``None`` if it has none or has ended."""
    try:
        with (proc / str(pid) / "maps").open("rb", buffering=0) as file:
            return next(mappings(file.read(_FIRST_BYTES)), None)
    except OSError as error:
        if error.errno in ABSENT:
            return None
        raise failure(proc / str(pid) / "maps", error, "read") from error


def open_mapped(proc: Path, pid: int, mapping: Mapping) -> int:
    """Open the file behind a mapping, whatever its path is by now; returns the descriptor.

    Raises:
        FileNotFoundError: If the process has ended or does not map it any more.
        OSError: If this user may not.
    """
    path = proc / str(pid) / "map_files" / mapping.place
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)


def _cached(proc: Path, pid: int, mapping: Mapping) -> int:
    """Count the cached pages of a mapped file; 0 if it is not mapped any more."""
    try:
        fd = open_mapped(proc, pid, mapping)
    except OSError as error:
        if error.errno in ABSENT:
            return 0
        raise failure(proc / str(pid) / "map_files", error, "open a file in") from error
    try:
        return cached_pages(fd).cached
    except OSError as error:
        raise failure(mapping.name.decode(errors="replace"), error, "count the pages of") from (
            error
        )
    finally:
        os.close(fd)


def choose(candidates: Sequence[Candidate], victim: Victim, count: int = 1) -> list[Candidate]:
    """Choose victims, the first one first; ties go to the process that started earlier.

    Args:
        candidates: The processes that may be acted on.
        victim: The rule.
        count: How many; with ``largest-file`` no two of them have the same file.
    """
    by_age = sorted(candidates, key=lambda one: (one.start_time_ticks, one.pid))
    if victim == "largest-file":
        with_file = [one for one in by_age if one.file is not None and one.cached_pages > 0]
        with_file.sort(key=lambda one: -one.cached_pages)
        distinct = {one.file: one for one in reversed(with_file)}
        return [one for one in with_file if distinct[one.file] is one][:count]
    if victim == "largest-size":
        return sorted(by_age, key=lambda one: -one.size_bytes)[:count]
    if victim == "protected":
        return by_age
    sign = 1 if victim == "next" else -1
    runnable = [one for one in by_age if one.runnable]
    return sorted(runnable, key=lambda one: sign * one.cpu_ticks)[:count]
