"""cpu.stat and io.stat of a group, and the first line of /proc/stat.

cpu.stat is that of a v2 group (also without the cpu controller) or of a v1 cpu group. In io.stat of
a v2 group, a byte that passes through stacked devices (LVM, dm-crypt) is counted by each of them.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stallward.actuator.errors import PartlyReadError, SensorError
from stallward.actuator.sensors.files.flat import (
    FlatParser,
    checked_count,
    flat_counts,
    parse_count,
)

# ---------- io.stat of a v2 group: the bytes that it read from and wrote to block devices
# A byte that passes through stacked devices (LVM, dm-crypt) is counted by each of them.

_DEVICE: Final = re.compile(rb"\d+:\d+")
_FIELDS: Final = {b"rbytes": "read_bytes", b"wbytes": "written_bytes"}


@dataclass(frozen=True, slots=True, kw_only=True)
class IoBytes:
    """Bytes read and written; absent values are ``None``."""

    read_bytes: int | None = None
    written_bytes: int | None = None


def parse_io_stat(content: bytes, path: Path) -> IoBytes:
    """Parse io.stat of v2, summed over devices; an empty file means that there was no I/O.

    The kernel writes the number of a device before it looks whether the device has counters. So
    devices without any (loop devices) precede another one on its line, or end the file without
    a newline. They hold nothing.

    Raises:
        PartlyReadError: If one of the two sums cannot be known.
        SensorError: If the content is malformed or cut short.
    """
    *lines, rest = content.split(b"\n")
    bare = rest.split()
    if rest and not (bare and rest.endswith(b" ") and all(map(_DEVICE.fullmatch, bare))):
        raise SensorError(path, f"cut short: {content[-60:]!r}")
    sums = {b"rbytes": 0, b"wbytes": 0}
    lost: dict[bytes, str] = {}
    for line in lines:
        words = line.split()
        if not words or _DEVICE.fullmatch(words[0]) is None:
            raise SensorError(path, f"not a device's line: {line[:60]!r}")
        for word in words:
            key, equals, value = word.partition(b"=")
            if not equals and _DEVICE.fullmatch(word) is None:
                raise SensorError(path, f"neither a device nor KEY=VALUE: {word[:40]!r}")
            if key in sums:
                try:
                    sums[key] = checked_count(sums[key] + parse_count(value, path), path)
                except SensorError:
                    lost[key] = f"{key.decode()} is no sum of counters: {line[:60]!r}"
    known = {_FIELDS[key]: None if key in lost else total for key, total in sums.items()}
    if not lost:
        return IoBytes(**known)
    what = "; ".join(lost.values())
    if len(lost) == len(sums):
        raise SensorError(path, what)
    names = frozenset(_FIELDS[key] for key in lost)
    raise PartlyReadError(path, what, value=IoBytes(**known), lost=names)


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
