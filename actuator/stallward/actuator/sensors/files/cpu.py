"""cpu.stat of a v2 group (also without the cpu controller) and of a v1 cpu group; /proc/stat."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stallward.actuator.errors import SensorError
from stallward.actuator.sensors.files.flat import (
    FlatParser,
    checked_count,
    flat_counts,
    parse_count,
)

_FIELDS_OF: Final = {
    b"usage_usec": ("usage_us",),
    b"user_usec": ("user_us",),
    b"throttled_usec": ("throttled_us",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuStat:
    """CPU time of a group; absent values are ``None``."""

    usage_us: int | None = None
    user_us: int | None = None
    """The part of it outside the kernel."""
    throttled_us: int | None = None


def cpu_stat_parser() -> FlatParser[CpuStat]:
    """Make a parser of cpu.stat of v2: CPU time used by the group and all below it.

    ``throttled_us`` is present only where the cpu controller is enabled for the group.
    """
    return FlatParser(
        _FIELDS_OF,
        lambda found: CpuStat(usage_us=found[0], user_us=found[1], throttled_us=found[2]),
    )


def parse_throttled_v1(content: bytes, path: Path) -> int | None:
    """Parse ``throttled_time`` of v1 cpu.stat; returns microseconds of the file's nanoseconds.

    Raises:
        SensorError: If the content is malformed or cut short.
    """
    (time_ns,) = flat_counts(content, (b"throttled_time",), path)
    return None if time_ns is None else time_ns // 1000


_US_PER_TICK: Final = 1_000_000 // os.sysconf("SC_CLK_TCK")
_STATES: Final = 8
"""The states of a CPU that /proc/stat counts, each time in exactly one: user, nice, system, idle,
iowait, irq, softirq, steal. The two for guests that follow are parts of the first two."""
_IDLE: Final = slice(3, 5)
"""Idle and iowait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineCpu:
    """The first line of /proc/stat; absent values are ``None``."""

    time_us: int | None = None
    """Time of all CPUs together."""
    idle_us: int | None = None
    """The part of it in which they had nothing to run."""


def parse_machine_cpu(content: bytes, path: Path) -> MachineCpu:
    """Parse the first line of /proc/stat; what follows it is not looked at.

    Raises:
        SensorError: If it is not that line, or is cut short.
    """
    line, newline, _ = content.partition(b"\n")
    words = line.split()
    if words[:1] != [b"cpu"] or not newline or len(words) <= _STATES:
        raise SensorError(path, f"does not begin with the time of all CPUs: {line[:60]!r}")
    times = [parse_count(word, path) for word in words[1 : _STATES + 1]]
    return MachineCpu(
        time_us=checked_count(sum(times) * _US_PER_TICK, path),
        idle_us=checked_count(sum(times[_IDLE]) * _US_PER_TICK, path),
    )
