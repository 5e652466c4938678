"""io.stat of a v2 group: the bytes that it read from and wrote to block devices.

A byte that passes through stacked devices (LVM, dm-crypt) is counted by each of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stallward.actuator.errors import PartlyReadError, SensorError
from stallward.actuator.sensors.files.flat import checked_count, parse_count

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
