"""io.stat of a v2 group: the bytes that it read from and wrote to block devices.

A byte that passes through stacked devices (LVM, dm-crypt) is counted by each of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stallward.actuator.errors import SensorError
from stallward.actuator.sensors.files.flat import checked_count, parse_count

_DEVICE: Final = re.compile(rb"\d+:\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class IoBytes:
    """Bytes read and written; absent values are ``None``."""

    read_bytes: int | None = None
    written_bytes: int | None = None


def parse_io_stat(content: bytes, path: Path) -> IoBytes:
    """Parse io.stat of v2, summed over devices; an empty file means that there was no I/O.

    Raises:
        SensorError: If the content is malformed or cut short.
    """
    if content and not content.endswith(b"\n"):
        raise SensorError(path, f"cut short: {content[-60:]!r}")
    read = written = 0
    for line in content.split(b"\n")[:-1]:
        device, *pairs = line.split() or (b"",)
        if _DEVICE.fullmatch(device) is None:
            raise SensorError(path, f"not a device's line: {line[:60]!r}")
        for pair in pairs:
            key, equals, value = pair.partition(b"=")
            if not equals:
                raise SensorError(path, f"not KEY=VALUE: {pair[:40]!r}")
            if key == b"rbytes":
                read += parse_count(value, path)
            elif key == b"wbytes":
                written += parse_count(value, path)
    return IoBytes(
        read_bytes=checked_count(read, path), written_bytes=checked_count(written, path)
    )
