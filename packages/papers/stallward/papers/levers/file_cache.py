"""What the page cache holds of a file, and writing its dirty pages back.

By cachestat(2), which Linux has since 6.5, and sync_file_range(2).
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from typing import Any, Final

PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_CACHESTAT: Final = 451
"""The number of cachestat on every architecture."""
_WAIT_BEFORE_AND_WRITE: Final = 1 | 2
"""SYNC_FILE_RANGE_WAIT_BEFORE and SYNC_FILE_RANGE_WRITE (linux/fs.h)."""


@dataclass(frozen=True, slots=True)
class CachedPages:
    """The pages of a file, or of a part of one, in the page cache (linux/mman.h)."""

    cached: int
    dirty: int
    writeback: int
    evicted: int
    recently_evicted: int


def cached_pages(fd: int, offset_bytes: int = 0, length_bytes: int = 0) -> CachedPages:
    """Count the pages of an open file in the page cache.

    Args:
        fd: The file.
        offset_bytes: Where the part begins that is counted.
        length_bytes: Its length; 0 for all that follows.

    Raises:
        OSError: With the kernel's error; ENOSYS before Linux 6.5.
    """
    part = (ctypes.c_uint64 * 2)(offset_bytes, length_bytes)
    found = (ctypes.c_uint64 * 5)()
    libc = ctypes.CDLL(None, use_errno=True)
    number: Any = ctypes.c_long(_CACHESTAT)
    if libc.syscall(number, ctypes.c_int(fd), part, found, ctypes.c_uint(0)) < 0:
        raise last_error(ctypes.get_errno())
    return CachedPages(*found)


def write_back(fd: int, most_pages: int) -> int:
    """Start to write back dirty pages of an open file, from its beginning.

    Pages that are being written already are waited for, as with WB_SYNC_ALL in the kernel.

    Args:
        fd: The file.
        most_pages: How many dirty pages are enough.

    Returns:
        The dirty pages whose writing was started. The parts are of ``most_pages`` pages, so that
        there may be somewhat more.

    Raises:
        OSError: With the kernel's error.
    """
    part_bytes = most_pages * PAGE_BYTES
    size_bytes = os.fstat(fd).st_size
    parts = [(0, -(-size_bytes // part_bytes))]
    written = 0
    while parts and written < most_pages:
        first, count = parts.pop()
        dirty = 0
        if count:
            dirty = cached_pages(fd, first * part_bytes, count * part_bytes).dirty
        if not dirty:
            continue
        if count > 1:  # halve the part until the dirty pages are found
            half = count // 2
            parts += [(first + half, count - half), (first, half)]
            continue
        _start_writing(fd, first * part_bytes, part_bytes)
        written += dirty
    return written


def _start_writing(fd: int, offset_bytes: int, length_bytes: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    offset, length = ctypes.c_int64(offset_bytes), ctypes.c_int64(length_bytes)
    if libc.sync_file_range(fd, offset, length, ctypes.c_uint(_WAIT_BEFORE_AND_WRITE)) < 0:
        raise last_error(ctypes.get_errno())


def last_error(number: int) -> OSError:
    """The error of a system call that was made by ctypes, from its errno."""
    return OSError(number, os.strerror(number))


def why_no_cachestat() -> str:
    """Say why the cached pages of files cannot be counted here; empty if they can."""
    major, minor = (int(part) for part in os.uname().release.split(".")[:2])
    return "" if (major, minor) >= (6, 5) else "no cachestat (Linux 6.5 or newer has it)"
