"""/proc/meminfo: how much memory and swap the machine has and has left."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stallward.actuator.errors import SensorError
from stallward.actuator.sensors.flat import checked_count, parse_count

_WANTED: Final = {
    b"MemTotal": "total_bytes",
    b"MemFree": "free_bytes",
    b"MemAvailable": "available_bytes",
    b"Buffers": "buffer_bytes",
    b"Cached": "cached_bytes",
    b"Inactive(file)": "inactive_file_bytes",
    b"AnonPages": "anon_pages_bytes",
    b"Shmem": "shared_bytes",
    b"Dirty": "dirty_bytes",
    b"Writeback": "writeback_bytes",
    b"SwapTotal": "swap_total_bytes",
    b"SwapFree": "swap_free_bytes",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryInfo:
    """The values used of /proc/meminfo; absent ones are ``None``."""

    total_bytes: int | None = None
    free_bytes: int | None = None
    available_bytes: int | None = None
    dirty_bytes: int | None = None
    writeback_bytes: int | None = None
    swap_total_bytes: int | None = None
    swap_free_bytes: int | None = None
    buffer_bytes: int | None = None
    cached_bytes: int | None = None
    """Page cache with shared memory."""
    inactive_file_bytes: int | None = None
    anon_pages_bytes: int | None = None
    """Anonymous pages without shared memory."""
    shared_bytes: int | None = None

    @property
    def anon_bytes(self) -> int | None:
        """What needs swap to be reclaimed: anonymous pages and shared memory."""
        anon = self.anon_pages_bytes
        return None if anon is None else anon + (self.shared_bytes or 0)

    @property
    def file_bytes(self) -> int | None:
        """What can be dropped or written back: page cache without shared memory."""
        cached = self.cached_bytes
        if cached is None:
            return None
        return max(cached + (self.buffer_bytes or 0) - (self.shared_bytes or 0), 0)


def parse_meminfo(content: bytes, path: Path) -> MemoryInfo:
    """Parse /proc/meminfo.

    Raises:
        SensorError: If a wanted line is malformed, or the end is cut off.
    """
    values: dict[str, int] = {}
    for line in content.split(b"\n"):
        key, _, rest = line.partition(b":")
        name = _WANTED.get(key)
        if name is None:
            continue
        words = rest.split()
        if len(words) != 2 or words[1] != b"kB":
            raise SensorError(path, f"not a size in kB: {line[:60]!r}")
        values[name] = checked_count(parse_count(words[0], path) * 1024, path)
    if not content.endswith(b"\n"):
        raise SensorError(path, f"cut short: {content[-40:]!r}")
    return MemoryInfo(**values)
