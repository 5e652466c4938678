"""/proc/diskstats: what each disk has done since boot."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stallward.actuator.errors import SensorError
from stallward.actuator.sensors.files.flat import MAX_COUNT, is_count

_SECTOR_BYTES = 512  # whatever the disk's own sectors are
_FIELDS = 14
_MOST = MAX_COUNT // 1000
"""The most of a counter that is multiplied by the bytes of a sector, or by 1000."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskCount:
    """The requests of one direction that a disk has completed."""

    requests: int
    bytes: int
    time_us: int
    """The sum of the times from making a request to its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """One disk or partition."""

    major: int
    minor: int
    name: str
    read: DiskCount
    written: DiskCount


def parse_diskstats(content: bytes, path: Path) -> tuple[Disk, ...]:
    """Parse the file; disks that never did anything are left out.

    Raises:
        SensorError: If a line is malformed or cut short.
    """
    if content and not content.endswith(b"\n"):
        raise SensorError(path, f"cut short: {content[-60:]!r}")
    disks = []
    for line in content.splitlines():
        words = line.split()
        numbers = [*words[:2], *words[3:_FIELDS]]
        known = len(words) >= _FIELDS and all(is_count(number, _MOST) for number in numbers)
        if not known or b"\0" in words[2]:
            raise SensorError(path, f"not a disk's line: {line[:80]!r}")
        major, minor, reads, _, sectors_in, in_ms, writes, _, sectors_out, out_ms, *_ = map(
            int, numbers
        )
        if reads or writes:
            disks.append(
                Disk(
                    major=major,
                    minor=minor,
                    name=words[2].decode("utf-8", "replace"),
                    read=DiskCount(
                        requests=reads, bytes=sectors_in * _SECTOR_BYTES, time_us=in_ms * 1000
                    ),
                    written=DiskCount(
                        requests=writes, bytes=sectors_out * _SECTOR_BYTES, time_us=out_ms * 1000
                    ),
                )
            )
    return tuple(disks)
