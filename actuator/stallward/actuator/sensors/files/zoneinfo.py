"""/proc/zoneinfo: the watermarks of the machine's memory zones."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from stallward.actuator.errors import KernelFileError, SensorError
from stallward.actuator.kernel.files import read_bytes
from stallward.actuator.sensors.files.flat import checked_count, parse_count

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


def parse_min_pages(content: bytes, path: Path | str) -> int:
    """Sum up the watermark MIN of all zones.

    Raises:
        SensorError: If there is no zone, the content is cut short, or a number is none.
    """
    if not content.endswith(b"\n"):
        raise SensorError(path, f"cut short: {content[-60:]!r}")
    marks = [line.split() for line in content.splitlines() if line.lstrip().startswith(b"min ")]
    if not marks or any(len(words) != 2 for words in marks):
        raise SensorError(path, f"no watermarks of zones: {content[:60]!r}")
    return checked_count(sum(parse_count(words[1], path) for words in marks), path)


def machine_min_bytes(proc: Path) -> int:
    """The free memory that the kernel keeps at least; 0 where the file does not say."""
    path = proc / "zoneinfo"
    try:
        content = read_bytes(path)
        return 0 if content is None else parse_min_pages(content, path) * _PAGE_BYTES
    except KernelFileError:
        return 0
