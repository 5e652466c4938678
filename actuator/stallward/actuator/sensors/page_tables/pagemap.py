"""Reads the state of all pages of a process from /proc/PID/pagemap.

The kernel reports runs of equal pages by the ioctl PAGEMAP_SCAN since 6.7, and skips what has no
entry. Before, there is only the file with 8 bytes for each page of address space.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
from collections.abc import Sequence
from typing import Final

import numpy as np

from stallward.actuator.kernel.memory.mappings import Mapping
from stallward.actuator.sensors.page_tables.page_runs import (
    FILE,
    HUGE,
    PAGE_SHIFT,
    PRESENT,
    SWAPPED,
    ZERO,
    PageRuns,
    concatenate,
    runs_of,
)

MOST_READ_BYTES: Final = 1 << 36
"""The most address space of one mapping that is read page by page: its entries take 128 MiB."""
_SCAN: Final = 0xC060_6610
"""PAGEMAP_SCAN: _IOWR('f', 16, struct pm_scan_arg)."""
_RUNS: Final = 1 << 14
"""Runs that one call returns."""
_PIECE_ENTRIES: Final = 1 << 18
_NO_SCAN: Final = frozenset({errno.ENOTTY, errno.EINVAL})


class _ScanArgument(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            "size", "flags", "start", "end", "walk_end", "vec", "vec_len", "max_pages",
            "category_inverted", "category_mask", "category_anyof_mask", "return_mask",
        )
    ]  # fmt: skip


def scan(fd: int, begin: int, end: int) -> PageRuns | None:
    """Ask for the runs of pages between two addresses; ``None`` if the kernel cannot say.

    Args:
        fd: An open /proc/PID/pagemap.
        begin: The first address, at a page.
        end: The address after the last one.

    Raises:
        OSError: If the process has no memory any more.
    """
    found = np.empty((_RUNS, 3), dtype=np.uint64)
    parts = []
    while begin < end:
        argument = _ScanArgument(
            size=ctypes.sizeof(_ScanArgument),
            start=begin,
            end=end,
            vec=found.ctypes.data,
            vec_len=_RUNS,
            category_anyof_mask=PRESENT | SWAPPED,
            return_mask=PRESENT | SWAPPED | FILE | HUGE | ZERO,
        )
        passed = bytearray(argument)
        try:
            count = fcntl.ioctl(fd, _SCAN, passed, True)
        except OSError as error:
            if error.errno in _NO_SCAN:
                return None
            raise
        runs = found[:count].astype(np.int64)
        pages = runs[:, :2] >> PAGE_SHIFT
        parts.append(PageRuns(pages[:, 0], pages[:, 1], runs[:, 2]))
        reached = _ScanArgument.from_buffer(passed).walk_end
        if reached <= begin:
            break
        begin = reached
    return concatenate(parts)


def read(fd: int, mappings: Sequence[Mapping]) -> PageRuns:
    """Read the entries of all pages of some mappings.

    Args:
        fd: An open /proc/PID/pagemap.
        mappings: The mappings, by address; those of more than ``MOST_READ_BYTES`` are left out.

    Raises:
        OSError: If the process has no memory any more.
    """
    parts = []
    for mapping in mappings:
        if mapping.length > MOST_READ_BYTES:
            continue
        page, last = mapping.start >> PAGE_SHIFT, mapping.end >> PAGE_SHIFT
        while page < last:
            data = os.pread(fd, 8 * min(last - page, _PIECE_ENTRIES), 8 * page)
            entries = np.frombuffer(data[: len(data) // 8 * 8], dtype=np.uint64)
            if not entries.size:
                break
            parts.append(runs_of(entries, page))
            page += entries.size
    return concatenate(parts)
