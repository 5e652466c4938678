"""What one process of a tree holds and has used: its stat, status, io and schedstat."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from stallward.actuator.errors import KernelFileError, SensorError
from stallward.actuator.kernelfile import read_bytes
from stallward.actuator.process_identity import stat_fields
from stallward.actuator.process_table import Seen, parse_seen
from stallward.actuator.sensors.flat import checked_count, parse_count

T = TypeVar("T")

_TICK_US: Final = 1_000_000 // os.sysconf("SC_CLK_TCK")
_SIZES: Final = {
    b"\nRssAnon:": "anon_bytes",
    b"\nRssFile:": "file_bytes",
    b"\nRssShmem:": "shared_bytes",
    b"\nVmSwap:": "swap_bytes",
}


@dataclass(slots=True, kw_only=True)
class Memory:
    """What a process holds; all 0 for one without memory of its own (it is exiting)."""

    anon_bytes: int = 0
    file_bytes: int = 0
    shared_bytes: int = 0
    """Shared memory (tmpfs): like anonymous pages it needs swap to be reclaimed."""
    swap_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """Counters of a process since it started; absent ones are ``None``."""

    cpu_us: int | None = None
    """Of all its threads, in steps of the kernel's clock tick (10 ms)."""
    major_faults: int | None = None
    run_delay_us: int | None = None
    """Of its first thread."""
    read_bytes: int | None = None
    """From storage."""
    written_bytes: int | None = None
    """To storage."""


def parse_status(content: bytes, path: Path | str) -> Memory:
    """What is used of /proc/PID/status.

    Raises:
        SensorError: If a wanted line is malformed or the end is cut off.
    """
    found = Memory()
    if not content.endswith(b"\n"):
        raise SensorError(path, f"cut short: {content[-40:]!r}")
    content = b"\n" + content
    for key, name in _SIZES.items():  # four of sixty lines
        at = content.find(key)
        if at < 0:
            continue
        line = content[at + len(key) : content.index(b"\n", at + 1)]
        words = line.split()
        if len(words) != 2 or words[1] != b"kB":
            raise SensorError(path, f"not a size in kB: {key[1:] + line[:60]!r}")
        setattr(found, name, checked_count(parse_count(words[0], path) * 1024, path))
    return found


def parse_io(content: bytes, path: Path | str) -> tuple[int | None, int | None]:
    """Bytes read from and written to storage, of /proc/PID/io.

    Raises:
        SensorError: If a wanted line is malformed.
    """
    values: dict[bytes, int] = {}
    for line in content.split(b"\n"):
        key, _, rest = line.partition(b": ")
        if key in {b"read_bytes", b"write_bytes"}:
            values[key] = parse_count(rest, path)
    return values.get(b"read_bytes"), values.get(b"write_bytes")


def parse_schedstat(content: bytes, path: Path | str) -> int:
    """How long it waited for a CPU, microseconds (the second field, nanoseconds).

    Raises:
        SensorError: If it is malformed.
    """
    words = content.split()
    if len(words) != 3:
        raise SensorError(path, f"not three counters: {content[:60]!r}")
    return parse_count(words[1], path) // 1000


def parse_used(stat: bytes, path: Path | str) -> tuple[int, int]:
    """CPU time in microseconds and major faults, of /proc/PID/stat.

    Raises:
        SensorError: If it is malformed.
    """
    fields = stat_fields(stat, path, SensorError)
    ticks = parse_count(fields[11], path) + parse_count(fields[12], path)
    return checked_count(ticks * _TICK_US, path), parse_count(fields[9], path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Everything of one process at one time."""

    seen: Seen
    memory: Memory
    used: Used


def read_member(proc: Path, pid: int, absent: set[str]) -> Reading | None:
    """One process; ``None`` if it is gone or has ended.

    Args:
        proc: Where /proc is.
        pid: The process.
        absent: Gets the reasons for what cannot be read.

    Raises:
        SensorError: If a file is there but malformed.
        KernelFileError: If stat or status cannot be read.
    """
    folder = f"{proc}/{pid}"  # making Paths takes longer than reading the files
    stat, status = read_bytes(f"{folder}/stat"), read_bytes(f"{folder}/status")
    if not stat or not status:
        return None
    seen = parse_seen(stat, f"{folder}/stat", pid)
    cpu_us, faults = parse_used(stat, f"{folder}/stat")
    read, written = _optional(f"{folder}/io", parse_io, absent) or (None, None)
    return Reading(
        seen=seen,
        memory=parse_status(status, f"{folder}/status"),
        used=Used(
            cpu_us=cpu_us,
            major_faults=faults,
            run_delay_us=_optional(f"{folder}/schedstat", parse_schedstat, absent),
            read_bytes=read,
            written_bytes=written,
        ),
    )


def _optional(path: str, parse: Callable[[bytes, str], T], absent: set[str]) -> T | None:
    """A file that not every kernel has, or that only root may read."""
    try:
        content = read_bytes(path)
        if content:
            return parse(content, path)
    except SensorError:
        raise
    except KernelFileError as error:
        absent.add(f"{path.rpartition('/')[2]}: {error.cause}")
    return None
