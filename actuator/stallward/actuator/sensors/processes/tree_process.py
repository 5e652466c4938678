"""The memory and usage of one process of a tree, from its stat, status, io and schedstat."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from stallward.actuator.errors import KernelFileError, PartlyReadError, SensorError
from stallward.actuator.kernel.files import read_bytes
from stallward.actuator.kernel.process_table import Seen, parse_seen, stat_fields
from stallward.actuator.sensors.files.cpu import IoBytes
from stallward.actuator.sensors.files.flat import MAX_COUNT, is_count, parse_count, parse_partly
from stallward.actuator.sensors.files.process_files import (
    ProcessStatus,
    parse_process_io,
    parse_schedstat,
    parse_status,
)
from stallward.actuator.sensors.processes.tracked_process import NOT_COUNTED, is_counted

T = TypeVar("T")

_TICK_US: Final = 1_000_000 // os.sysconf("SC_CLK_TCK")
_MOST_TICKS: Final = MAX_COUNT // (2 * _TICK_US)
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


def parse_used(stat: bytes, path: Path | str) -> tuple[int | None, int | None]:
    """Parse CPU time in microseconds and major faults from /proc/PID/stat.

    Raises:
        PartlyReadError: If one of the two cannot be understood.
        SensorError: If none can.
    """
    fields = stat_fields(stat, path, SensorError)
    faults = parse_count(fields[9], path) if is_count(fields[9]) else None
    cpu_us = None
    if is_count(fields[11], _MOST_TICKS) and is_count(fields[12], _MOST_TICKS):
        cpu_us = (int(fields[11]) + int(fields[12])) * _TICK_US
    if cpu_us is not None and faults is not None:
        return cpu_us, faults
    what = f"not counters: {b' '.join(fields[9:13])[:80]!r}"
    if cpu_us is None and faults is None:
        raise SensorError(path, what)
    lost = frozenset({"cpu_usage_us" if cpu_us is None else "major_faults"})
    raise PartlyReadError(path, what, value=(cpu_us, faults), lost=lost)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """All readings of one process at one time."""

    seen: Seen
    status: ProcessStatus
    used: Used
    lost: frozenset[str] = frozenset()
    """The sizes in ``status`` that could not be understood."""


def read_member(
    proc: Path, pid: int, absent: set[str], faults: list[SensorError]
) -> Reading | None:
    """Read one process; ``None`` if it has ended.

    Args:
        proc: The /proc directory.
        pid: The process.
        absent: A set to which the reasons for unreadable files are added.
        faults: A list to which malformed signals are added, which are absent then.

    Raises:
        SensorError: If it cannot be told which process this is, or what memory it has.
        KernelFileError: If stat or status cannot be read.
    """
    folder = f"{proc}/{pid}"  # making Paths takes longer than reading the files
    stat, status = read_bytes(f"{folder}/stat"), read_bytes(f"{folder}/status")
    if not stat or not status:
        return None
    seen = parse_seen(stat, f"{folder}/stat", pid)
    used, fault = parse_partly(parse_used, stat, f"{folder}/stat")
    cpu_us, major_faults = used or (None, None)
    faults += [] if fault is None else [fault]
    lost: frozenset[str] = frozenset()
    try:
        memory = parse_status(status, f"{folder}/status")
    except PartlyReadError as error:
        memory, lost = error.value, error.lost
        faults.append(error)
    delay_us = _optional(f"{folder}/schedstat", parse_schedstat, absent, faults)
    if delay_us == 0 and not is_counted(proc):
        absent.add(f"schedstat: {NOT_COUNTED}")
        delay_us = None
    io = _optional(f"{folder}/io", parse_process_io, absent, faults) or _NO_IO
    return Reading(
        seen=seen,
        status=memory,
        used=Used(
            cpu_us=cpu_us,
            major_faults=major_faults,
            run_delay_us=delay_us,
            read_bytes=io.read_bytes,
            written_bytes=io.written_bytes,
        ),
        lost=lost,
    )


def _optional(
    path: str,
    parse: Callable[[bytes, str], T],
    absent: set[str],
    faults: list[SensorError],
) -> T | None:
    """Read a file that not every kernel has, or that only root may read."""
    try:
        content = read_bytes(path)
    except KernelFileError as error:
        absent.add(f"{path.rpartition('/')[2]}: {error.what}")
        return None
    if not content:
        return None
    value, fault = parse_partly(parse, content, path)
    faults += [] if fault is None else [fault]
    return value
