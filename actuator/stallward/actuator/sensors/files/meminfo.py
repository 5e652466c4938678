"""/proc/meminfo: the memory and swap of the machine, and how much of it is free."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stallward.actuator.errors import PartlyReadError, SensorError

FIELDS_OF_KEYS: Final = {
    b"MemTotal": "total_bytes",
    b"MemFree": "free_bytes",
    b"MemAvailable": "available_bytes",
    b"Dirty": "dirty_bytes",
    b"Writeback": "writeback_bytes",
    b"Buffers": "buffer_bytes",
    b"Cached": "cached_bytes",
    b"Inactive(file)": "inactive_file_bytes",
    b"AnonPages": "anon_pages_bytes",
    b"Shmem": "shared_bytes",
    b"SReclaimable": "reclaimable_slab_bytes",
    b"SwapTotal": "swap_total_bytes",
    b"SwapFree": "swap_free_bytes",
}
"""Maps the file's keys to fields, in the order of the fields."""
_TOTAL: Final = b"MemTotal"
_SWAP_TOTAL: Final = b"SwapTotal"
_SWAP_FREE: Final = b"SwapFree"
_NEEDED_FOR: Final = {b"Shmem": (b"AnonPages", b"Cached"), b"Buffers": (b"Cached",)}
"""Keys whose values mean nothing without that of another key."""
_MOST_DIGITS: Final = 15
"""No machine has an exbibyte: a longer number is a negative one, printed without its sign."""


@dataclass(frozen=True, slots=True)
class MemoryInfo:
    """The values of /proc/meminfo that are used; absent ones are ``None``."""

    total_bytes: int | None = None
    free_bytes: int | None = None
    available_bytes: int | None = None
    dirty_bytes: int | None = None
    writeback_bytes: int | None = None
    buffer_bytes: int | None = None
    cached_bytes: int | None = None
    """The page cache, including shared memory."""
    inactive_file_bytes: int | None = None
    anon_pages_bytes: int | None = None
    """The anonymous pages, without shared memory."""
    shared_bytes: int | None = None
    reclaimable_slab_bytes: int | None = None
    """Memory of the kernel itself that it can give up: caches of names and inodes, mostly."""
    swap_total_bytes: int | None = None
    swap_free_bytes: int | None = None

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
    """Parses /proc/meminfo by the known positions of its lines.

    No value can be more than the total that it is a part of. In a container one may be, where a
    file system (lxcfs) mixes the container's values with the machine's, or subtracts too much.
    Such a value is absent.
    """

    def __init__(self) -> None:
        self._count = -1
        self._places: tuple[tuple[int, bytes, int], ...] = ()

    def __call__(self, content: bytes, path: Path) -> MemoryInfo:
        """Parse the file.

        Raises:
            PartlyReadError: If some of the values cannot be known.
            SensorError: If none can.
        """
        lines = content.split(b"\n")
        if len(lines) != self._count or lines[-1]:
            return self._learn(lines, path)
        sizes: list[int] = []
        for index, start, length in self._places:
            line = lines[index]
            digits = line[length:-3].lstrip(b" ")
            expected = line[:length] == start and line[-3:] == b" kB" and digits.isdigit()
            if not expected or len(digits) > _MOST_DIGITS:
                return self._learn(lines, path)
            sizes.append(int(digits) * 1024)
        if sizes[-1] > sizes[-2] or max(sizes[:-2]) > sizes[0]:
            return self._learn(lines, path)
        return MemoryInfo(*sizes)

    def _learn(self, lines: list[bytes], path: Path) -> MemoryInfo:
        self._count = -1
        *whole, rest = lines
        places: dict[bytes, int] = {}
        lost: dict[bytes, str] = {}
        sizes: dict[bytes, int] = {}
        for index, line in enumerate(whole):
            key, _, text = line.partition(b":")
            if key not in FIELDS_OF_KEYS:
                continue
            words = text.split()
            if key in places:
                lost[key] = f"{key.decode()} is there twice"
            elif len(words) != 2 or words[1] != b"kB" or not words[0].isdigit():
                lost[key] = f"not a size in kB: {line[:60]!r}"
            elif len(words[0]) > _MOST_DIGITS:
                lost[key] = f"more than any machine has: {line[:60]!r}"
            else:
                sizes[key] = int(words[0]) * 1024
            places[key] = index
        if rest or not whole:
            missing = (key for key in FIELDS_OF_KEYS if key not in places)
            lost |= dict.fromkeys(missing, f"cut short: {rest[-40:]!r}")
        if not places:
            raise SensorError(path, f"no sizes of memory: {lines[0][:60]!r}")
        _refuse_impossible(sizes, lost)
        if len(places) == len(FIELDS_OF_KEYS) and not lost:
            self._places = tuple((places[k], k + b":", len(k) + 1) for k in FIELDS_OF_KEYS)
            self._count = len(lines)
        known = {FIELDS_OF_KEYS[key]: size for key, size in sizes.items() if key not in lost}
        if not lost:
            return MemoryInfo(**known)
        what = "; ".join(dict.fromkeys(lost.values()))
        if not known:
            raise SensorError(path, what)
        names = frozenset(FIELDS_OF_KEYS[key] for key in lost)
        raise PartlyReadError(path, what, value=MemoryInfo(**known), lost=names)


def _refuse_impossible(sizes: dict[bytes, int], lost: dict[bytes, str]) -> None:
    """Note in ``lost`` the values that cannot be; without swap, its free part is 0."""
    if sizes.get(_TOTAL) == 0:
        lost[_TOTAL] = "MemTotal is 0"
    for key, size in sizes.items():
        whole = _SWAP_TOTAL if key == _SWAP_FREE else _TOTAL
        if whole not in sizes or whole in lost or key == _SWAP_TOTAL:
            continue
        if size > sizes[whole]:
            lost[key] = (
                f"{key.decode()} is {size // 1024} kB, more than {whole.decode()} "
                f"({sizes[whole] // 1024} kB)"
            )
    no_swap = sizes.get(_SWAP_TOTAL) == 0 and _SWAP_TOTAL not in lost
    if no_swap and _SWAP_FREE in sizes.keys() | lost.keys():
        sizes[_SWAP_FREE] = 0
        lost.pop(_SWAP_FREE, None)
    for key, users in _NEEDED_FOR.items():
        if key in lost:
            lost |= dict.fromkeys(users, lost[key])


def parse_meminfo(content: bytes, path: Path) -> MemoryInfo:
    """Parse /proc/meminfo.

    Raises:
        PartlyReadError: If some of the values cannot be known.
        SensorError: If none can.
    """
    return MeminfoParser()(content, path)
