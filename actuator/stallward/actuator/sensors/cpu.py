"""cpu.stat of a v2 group: there also without the cpu controller."""

from __future__ import annotations

from pathlib import Path

from stallward.actuator.sensors.flat import count_of, parse_flat


def parse_cpu_usage_us(content: bytes, path: Path) -> int | None:
    """CPU time used by the group and all below it, microseconds.

    Raises:
        SensorError: If it is malformed or cut short.
    """
    return count_of(parse_flat(content, path), b"usage_usec", path)
