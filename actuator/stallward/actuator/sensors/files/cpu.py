"""cpu.stat of a v2 group (there also without the cpu controller), and of a v1 cpu group."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stallward.actuator.sensors.files.flat import count_of, parse_flat


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuStat:
    """CPU time of a group; absent values are ``None``."""

    usage_us: int | None = None
    throttled_us: int | None = None


def parse_cpu_stat(content: bytes, path: Path) -> CpuStat:
    """Parse cpu.stat of v2: CPU time used by the group and all below it.

    ``throttled_us`` is present only where the cpu controller is enabled for the group.

    Raises:
        SensorError: If the content is malformed or cut short.
    """
    table = parse_flat(content, path)
    return CpuStat(
        usage_us=count_of(table, b"usage_usec", path),
        throttled_us=count_of(table, b"throttled_usec", path),
    )


def parse_throttled_v1(content: bytes, path: Path) -> int | None:
    """Parse ``throttled_time`` of v1 cpu.stat; returns microseconds of the file's nanoseconds.

    Raises:
        SensorError: If the content is malformed or cut short.
    """
    time_ns = count_of(parse_flat(content, path), b"throttled_time", path)
    return None if time_ns is None else time_ns // 1000
