"""The memory and the paging of the machine: /proc/meminfo, /proc/vmstat and /proc/zoneinfo."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

from stallward.actuator.errors import KernelFileError, PartlyReadError, SensorError
from stallward.actuator.kernel.files import read_bytes
from stallward.actuator.sensors.files.flat import (
    FlatParser,
    SignalFile,
    checked_count,
    parse_count,
)

# One counter per memory zone since kernel 4.10, a single one before.
_STALLS: Final = tuple(
    b"allocstall" + zone
    for zone in (b"", b"_dma", b"_dma32", b"_normal", b"_high", b"_movable", b"_device")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class VmStat:
    """The counters of /proc/vmstat that are used, since boot; absent ones are ``None``."""

    swap_in_pages: int | None = None
    swap_out_pages: int | None = None
    major_faults: int | None = None
    refault_file_pages: int | None = None
    refault_anon_pages: int | None = None
    scan_kswapd_pages: int | None = None
    scan_direct_pages: int | None = None
    steal_kswapd_pages: int | None = None
    steal_direct_pages: int | None = None
    allocation_stalls: int | None = None


_FIELDS_OF: Final = {
    b"pswpin": ("swap_in_pages",),
    b"pswpout": ("swap_out_pages",),
    b"pgmajfault": ("major_faults",),
    b"workingset_refault_file": ("refault_file_pages",),
    b"workingset_refault": (),  # before kernel 5.9, anonymous pages had no refaults
    b"workingset_refault_anon": ("refault_anon_pages",),
    b"pgscan_kswapd": ("scan_kswapd_pages",),
    b"pgscan_direct": ("scan_direct_pages",),
    b"pgsteal_kswapd": ("steal_kswapd_pages",),
    b"pgsteal_direct": ("steal_direct_pages",),
    **dict.fromkeys(_STALLS, ("allocation_stalls",)),
}
"""The counters of the file, in the order in which they are taken, each with the fields that need
it."""


def vmstat_parser() -> FlatParser[VmStat]:
    """Make a parser of /proc/vmstat."""
    return FlatParser(_FIELDS_OF, _make)


def _make(counts: list[int | None]) -> VmStat:
    swap_in, swap_out, major_faults, refault_file, old_refaults, refault_anon = counts[:6]
    scan_kswapd, scan_direct, steal_kswapd, steal_direct = counts[6:10]
    stalls = [count for count in counts[10:] if count is not None]
    return VmStat(
        swap_in_pages=swap_in,
        swap_out_pages=swap_out,
        major_faults=major_faults,
        refault_file_pages=old_refaults if refault_file is None else refault_file,
        refault_anon_pages=refault_anon,
        scan_kswapd_pages=scan_kswapd,
        scan_direct_pages=scan_direct,
        steal_kswapd_pages=steal_kswapd,
        steal_direct_pages=steal_direct,
        allocation_stalls=sum(stalls) if stalls else None,
    )


def vmstat_file(path: Path) -> SignalFile[VmStat]:
    """Open /proc/vmstat; only its first piece is read if that has all the counters.

    The kernel sums up all counters anew for every piece (22 us each), and once more for the empty
    piece at the end.
    """
    signal = SignalFile(path, vmstat_parser(), VmStat(), one_piece=True)
    whole = SignalFile(path, vmstat_parser(), VmStat())
    if _present(signal.read()) == _present(whole.read()):
        whole.close()
        return signal
    signal.close()
    return whole


def _present(stat: VmStat) -> tuple[bool, ...]:
    return tuple(getattr(stat, field.name) is not None for field in fields(stat))


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
