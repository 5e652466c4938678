"""The memory of a process as its mappings say: smaps_rollup has the sums, smaps each mapping."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stallward.actuator.errors import SensorError
from stallward.actuator.sensors.files.flat import checked_count, is_count

FIELDS_OF_KEYS: Final = {
    b"Rss": "rss_bytes",
    b"Pss": "pss_bytes",
    b"Pss_Anon": "pss_anon_bytes",
    b"Pss_File": "pss_file_bytes",
    b"Pss_Shmem": "pss_shmem_bytes",
    b"Shared_Clean": "shared_clean_bytes",
    b"Shared_Dirty": "shared_dirty_bytes",
    b"Private_Clean": "private_clean_bytes",
    b"Private_Dirty": "private_dirty_bytes",
    b"Referenced": "referenced_bytes",
    b"Anonymous": "anonymous_bytes",
    b"LazyFree": "lazy_free_bytes",
    b"AnonHugePages": "anon_huge_bytes",
    b"Shared_Hugetlb": "shared_hugetlb_bytes",
    b"Private_Hugetlb": "private_hugetlb_bytes",
    b"Swap": "swap_bytes",
    b"SwapPss": "swap_pss_bytes",
    b"Locked": "locked_bytes",
}
"""Maps the keys of both files to fields."""
_LINE: Final = re.compile(
    rb"^(" + b"|".join(FIELDS_OF_KEYS) + rb"):[ \t]+(\d{1,15}) kB$", re.MULTILINE
)
_HEADER: Final = re.compile(
    rb"^[0-9a-f]+-[0-9a-f]+ [-r][-w][-x][sp] [0-9a-f]+ [0-9a-f]+:[0-9a-f]+ (\d+) *(.*)$",
    re.MULTILINE,
)
_SHARED_MEMORY: Final = (b"/dev/shm/", b"/SYSV", b"/memfd:", b"/dev/zero")
_STACK: Final = b"[stack"
_HEAP: Final = b"[heap]"


@dataclass(frozen=True, slots=True, kw_only=True)
class MapSizes:
    """The sums over all mappings of a process; ``None`` for what this kernel does not tell."""

    rss_bytes: int | None = None
    pss_bytes: int | None = None
    pss_anon_bytes: int | None = None
    pss_file_bytes: int | None = None
    pss_shmem_bytes: int | None = None
    shared_clean_bytes: int | None = None
    shared_dirty_bytes: int | None = None
    private_clean_bytes: int | None = None
    private_dirty_bytes: int | None = None
    referenced_bytes: int | None = None
    anonymous_bytes: int | None = None
    """Anonymous pages, also those of private file mappings that were written to."""
    lazy_free_bytes: int | None = None
    anon_huge_bytes: int | None = None
    shared_hugetlb_bytes: int | None = None
    private_hugetlb_bytes: int | None = None
    swap_bytes: int | None = None
    swap_pss_bytes: int | None = None
    locked_bytes: int | None = None

    @property
    def private_bytes(self) -> int | None:
        """What no other process maps, and ending the process would free (USS)."""
        return _sum(self.private_clean_bytes, self.private_dirty_bytes, self.private_hugetlb_bytes)

    @property
    def shared_bytes(self) -> int | None:
        """What another process also maps."""
        return _sum(self.shared_clean_bytes, self.shared_dirty_bytes, self.shared_hugetlb_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingKinds:
    """The resident memory by the kind of mapping, as pmap(1) names them."""

    anon_bytes: int = 0
    """In mappings without a file, the heap included, the stack not."""
    heap_bytes: int = 0
    """The part of them that brk(2) made."""
    stack_bytes: int = 0
    file_bytes: int = 0
    """In mappings of files, be their pages the file's or private copies."""
    shmem_bytes: int = 0
    """In mappings of shared memory: shm_open(3), memfd_create(2), System V, shared anonymous."""
    mappings: int = 0


def _sum(first: int | None, second: int | None, huge: int | None) -> int | None:
    if first is None or second is None:
        return None
    return first + second + (huge or 0)


def parse_map_sizes(content: bytes, path: Path | str) -> MapSizes:
    """Parse smaps_rollup, or sum up smaps.

    Raises:
        SensorError: If the content is neither, or cut short.
    """
    if not content.endswith(b"\n"):
        raise SensorError(path, f"cut short: {content[-60:]!r}")
    sums: dict[str, int] = {}
    for key, kib in _LINE.findall(content):
        name = FIELDS_OF_KEYS[key]
        sums[name] = sums.get(name, 0) + int(kib) * 1024
    if "rss_bytes" not in sums or "private_dirty_bytes" not in sums:
        raise SensorError(path, f"not the sizes of mappings: {content[:60]!r}")
    for value in sums.values():
        checked_count(value, path)
    return MapSizes(**sums)


def parse_mapping_kinds(content: bytes, path: Path | str) -> MappingKinds:
    """Sum up the resident memory in smaps by the kind of mapping.

    Raises:
        SensorError: If the content is not that of smaps, or cut short.
    """
    if content and not content.endswith(b"\n"):
        raise SensorError(path, f"cut short: {content[-60:]!r}")
    sizes: dict[str, int] = {}
    headers = list(_HEADER.finditer(content))
    if content and (not headers or headers[0].start() != 0):
        raise SensorError(path, f"not a list of mappings: {content[:60]!r}")
    ends = (*(header.start() for header in headers[1:]), len(content))
    for header, end in zip(headers, ends, strict=False):
        size = _resident(content[header.end() : end], path)
        for kind in _kinds_of(header[1], header[2]):
            sizes[kind] = checked_count(sizes.get(kind, 0) + size, path)
    return MappingKinds(**sizes, mappings=len(headers))


def _resident(mapping: bytes, path: Path | str) -> int:
    """The ``Rss`` in the lines of one mapping."""
    start = mapping.find(b"\nRss:")
    end = mapping.find(b" kB\n", start)
    digits = mapping[start + 5 : end].strip()
    if start < 0 or end < 0 or not is_count(digits):
        raise SensorError(path, f"a mapping without its size: {mapping[:60]!r}")
    return int(digits) * 1024


def _kinds_of(inode: bytes, name: bytes) -> tuple[str, ...]:
    if name.startswith(_STACK):
        return ("stack_bytes",)
    if name == _HEAP:
        return ("anon_bytes", "heap_bytes")
    if name.startswith(_SHARED_MEMORY):
        return ("shmem_bytes",)
    return ("anon_bytes",) if inode == b"0" else ("file_bytes",)
