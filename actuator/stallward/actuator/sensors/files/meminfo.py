"""/proc/meminfo: the memory and swap of the machine, and how much of it is free."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stallward.actuator.errors import SensorError
from stallward.actuator.sensors.files.flat import checked_count, parse_count

FIELDS_OF_KEYS: Final = {
    b"MemTotal": "total_bytes",
    b"MemFree": "free_bytes",
    b"MemAvailable": "available_bytes",
    b"Dirty": "dirty_bytes",
    b"Writeback": "writeback_bytes",
    b"SwapTotal": "swap_total_bytes",
    b"SwapFree": "swap_free_bytes",
    b"Buffers": "buffer_bytes",
    b"Cached": "cached_bytes",
    b"Inactive(file)": "inactive_file_bytes",
    b"AnonPages": "anon_pages_bytes",
    b"Shmem": "shared_bytes",
}
"""Maps the file's keys to fields, in the order of the fields."""


@dataclass(frozen=True, slots=True)
class MemoryInfo:
    """The values of /proc/meminfo that are used; absent ones are ``None``."""

    total_bytes: int | None = None
    free_bytes: int | None = None
    available_bytes: int | None = None
    dirty_bytes: int | None = None
    writeback_bytes: int | None = None
    swap_total_bytes: int | None = None
    swap_free_bytes: int | None = None
    buffer_bytes: int | None = None
    cached_bytes: int | None = None
    """The page cache, including shared memory."""
    inactive_file_bytes: int | None = None
    anon_pages_bytes: int | None = None
    """The anonymous pages, without shared memory."""
    shared_bytes: int | None = None

    @property
    def anon_bytes(self) -> int | None:
        """Memory that needs swap to be reclaimed: anonymous pages and shared memory."""
        anon = self.anon_pages_bytes
        return None if anon is None else anon + (self.shared_bytes or 0)

    @property
    def file_bytes(self) -> int | None:
        """Memory that can be dropped or written back: page cache without shared memory."""
        cached = self.cached_bytes
        if cached is None:
            return None
        return max(cached + (self.buffer_bytes or 0) - (self.shared_bytes or 0), 0)


class MeminfoParser:
    """Parses /proc/meminfo by the known positions of its lines."""

    def __init__(self) -> None:
        self._count = -1
        self._places: tuple[tuple[int, bytes, int], ...] = ()

    def __call__(self, content: bytes, path: Path) -> MemoryInfo:
        """Parse the file.

        Raises:
            SensorError: If a used line is malformed or occurs twice, or the end is cut off.
        """
        lines = content.split(b"\n")
        if len(lines) != self._count or lines[-1]:
            return self._learn(lines, path)
        sizes: list[int] = []
        for index, start, length in self._places:
            line = lines[index]
            digits = line[length:-3].lstrip(b" ")
            expected = line[:length] == start and line[-3:] == b" kB" and digits.isdigit()
            if not expected or len(digits) > 15:
                return self._learn(lines, path)
            sizes.append(int(digits) * 1024)
        return MemoryInfo(*sizes)

    def _learn(self, lines: list[bytes], path: Path) -> MemoryInfo:
        self._count = -1
        sizes: dict[bytes, tuple[int, int]] = {}
        for index, line in enumerate(lines):
            key, _, rest = line.partition(b":")
            if key not in FIELDS_OF_KEYS:
                continue
            words = rest.split()
            if len(words) != 2 or words[1] != b"kB" or key in sizes:
                raise SensorError(path, f"not a size in kB: {line[:60]!r}")
            sizes[key] = (index, checked_count(parse_count(words[0], path) * 1024, path))
        if lines[-1] or len(lines) < 2:
            raise SensorError(path, f"cut short: {lines[-1][-40:]!r}")
        if len(sizes) == len(FIELDS_OF_KEYS):
            self._places = tuple((sizes[k][0], k + b":", len(k) + 1) for k in FIELDS_OF_KEYS)
            self._count = len(lines)
        return MemoryInfo(**{FIELDS_OF_KEYS[key]: size for key, (_, size) in sizes.items()})


def parse_meminfo(content: bytes, path: Path) -> MemoryInfo:
    """Parse /proc/meminfo.

    Raises:
        SensorError: If a line that is used is malformed, or the end is cut off.
    """
    return MeminfoParser()(content, path)
