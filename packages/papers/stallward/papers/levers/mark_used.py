"""Marking the cached pages of a file as used, without reading others.

Each page is touched in a mapping. When that ends, the kernel calls ``folio_mark_accessed`` once for
what was touched of each folio (``zap_present_folio_ptes`` and ``zap_huge_pmd`` in mm/memory.c and
mm/huge_memory.c; before Linux 6.9 once for each page of a folio), unless the mapping is for random
access. While pages are touched it is for random access, because the kernel would read ahead where
it comes upon a mark of its own readahead, as it does for read(2).

What one page table maps is mapped at a time, at a place that lies in its page table as the part lies
in the file: so no folio lies in two page tables, in which it would count twice.

Only the process that reads pages in imports this: a process gets SIGBUS if the file becomes shorter
while it touches pages. A page that leaves the cache at that moment is read in alone, and charged to
the group of this process.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Final

from stallward.papers.levers.file_cache import PAGE_BYTES, cached_pages, last_error

_TABLE_PAGES: Final = PAGE_BYTES // 8
"""The pages that one page table maps; no folio of the page cache is larger."""
_TABLE_BYTES: Final = _TABLE_PAGES * PAGE_BYTES
_PROT_NONE: Final = 0
_MAP_FIXED: Final = 0x10
_RESERVED: Final = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_FAILED: Final = ctypes.c_void_p(-1).value


class Marker:
    """Marks pages in a range of addresses that it keeps."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.mmap.restype = ctypes.c_void_p
        self._libc.mmap.argtypes = (
            *(ctypes.c_void_p, ctypes.c_size_t),
            *(ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long),
        )
        self._libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        start = self._map(None, 2 * _TABLE_BYTES, _PROT_NONE, _RESERVED)
        self._table = -(-start // _TABLE_BYTES) * _TABLE_BYTES

    def mark_used(self, fd: int, offset_bytes: int, length_bytes: int) -> int:
        """Mark the cached pages of a part of a file as used once.

        Args:
            fd: The file.
            offset_bytes: Where the part begins.
            length_bytes: Its length.

        Returns:
            The pages that were marked.

        Raises:
            OSError: With the kernel's error; ENODEV where the file cannot be mapped.
        """
        end_bytes = min(offset_bytes + length_bytes, os.fstat(fd).st_size)
        begin, end = offset_bytes // PAGE_BYTES, -(-end_bytes // PAGE_BYTES)
        tables = range(begin // _TABLE_PAGES * _TABLE_PAGES, end, _TABLE_PAGES)
        return sum(self._mark_table(fd, first, begin, end) for first in tables)

    def _mark_table(self, fd: int, table: int, begin: int, end: int) -> int:
        """Mark what one page table maps, as far as it lies between two pages of the file."""
        parts = [(table, _TABLE_PAGES)]
        marked = 0
        while parts:
            part, count = parts.pop()
            first, last = max(part, begin), min(part + count, end)
            if first >= last:
                continue
            offset_bytes, length_bytes = first * PAGE_BYTES, (last - first) * PAGE_BYTES
            cached = cached_pages(fd, offset_bytes, length_bytes).cached
            if cached >= last - first:
                self._touch(fd, offset_bytes, length_bytes)
                marked += last - first
            elif cached:  # halve the part until all of one is cached: a folio is never cut
                half = count // 2
                parts += [(part + half, half), (part, half)]
        return marked

    def _touch(self, fd: int, offset_bytes: int, length_bytes: int) -> None:
        address = self._table + offset_bytes % _TABLE_BYTES
        flags = mmap.MAP_SHARED | _MAP_FIXED
        self._map(address, length_bytes, mmap.PROT_READ, flags, fd, offset_bytes)
        try:
            self._advise(address, length_bytes, mmap.MADV_RANDOM)
            (ctypes.c_char * length_bytes).from_address(address)[::PAGE_BYTES]
            self._advise(address, length_bytes, mmap.MADV_NORMAL)
        finally:
            self._map(address, length_bytes, _PROT_NONE, _RESERVED | _MAP_FIXED)

    def _advise(self, address: int, length_bytes: int, advice: int) -> None:
        if self._libc.madvise(address, length_bytes, advice):
            raise last_error(ctypes.get_errno())

    def _map(
        self,
        address: int | None,
        length_bytes: int,
        protection: int,
        flags: int,
        fd: int = -1,
        offset_bytes: int = 0,
    ) -> int:
        found = self._libc.mmap(address, length_bytes, protection, flags, fd, offset_bytes)
        if found == _FAILED:
            raise last_error(ctypes.get_errno())
        return int(found)
