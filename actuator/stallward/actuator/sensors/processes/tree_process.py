"""The memory and usage of one process of a tree, from its stat, status, io and schedstat."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from stallward.actuator.errors import KernelFileError, SensorError
from stallward.actuator.kernel.files import read_bytes
from stallward.actuator.kernel.process_identity import stat_fields
from stallward.actuator.kernel.process_table import Seen, parse_seen
from stallward.actuator.sensors.files.flat import checked_count, parse_count
from stallward.actuator.sensors.files.io_stat import IoBytes
from stallward.actuator.sensors.files.process_files import (
    ProcessStatus,
    parse_process_io,
    parse_schedstat,
    parse_status,
)

T = TypeVar("T")

_TICK_US: Final = 1_000_000 // os.sysconf("SC_CLK_TCK")
_NO_IO: Final = IoBytes()


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """Counters of a process since it started; absent ones are ``None``."""

    cpu_us: int | None = None
    """CPU time of all threads, in steps of the kernel's clock tick (10 ms)."""
    major_faults: int | None = None
    run_delay_us: int | None = None
    """Run delay of the first thread."""
    read_bytes: int | None = None
    """Bytes read from storage."""
    written_bytes: int | None = None
    """Bytes written to storage."""


def parse_used(stat: bytes, path: Path | str) -> tuple[int, int]:
    """Parse CPU time in microseconds and major faults from /proc/PID/stat.

    Raises:
        SensorError: If the content is malformed.
    """
    fields = stat_fields(stat, path, SensorError)
    ticks = parse_count(fields[11], path) + parse_count(fields[12], path)
    return checked_count(ticks * _TICK_US, path), parse_count(fields[9], path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """All readings of one process at one time."""

    seen: Seen
    status: ProcessStatus
    used: Used


def read_member(proc: Path, pid: int, absent: set[str]) -> Reading | None:
    """Read one process; ``None`` if it has ended.

    Args:
        proc: The /proc directory.
        pid: The process.
        absent: A set to which the reasons for unreadable files are added.

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
    io = _optional(f"{folder}/io", parse_process_io, absent) or _NO_IO
    return Reading(
        seen=seen,
        status=parse_status(status, f"{folder}/status"),
        used=Used(
            cpu_us=cpu_us,
            major_faults=faults,
            run_delay_us=_optional(f"{folder}/schedstat", parse_schedstat, absent),
            read_bytes=io.read_bytes,
            written_bytes=io.written_bytes,
        ),
    )


def _optional(path: str, parse: Callable[[bytes, str], T], absent: set[str]) -> T | None:
    """Read a file that not every kernel has, or that only root may read."""
    try:
        content = read_bytes(path)
        if content:
            return parse(content, path)
    except SensorError:
        raise
    except KernelFileError as error:
        absent.add(f"{path.rpartition('/')[2]}: {error.cause}")
    return None
