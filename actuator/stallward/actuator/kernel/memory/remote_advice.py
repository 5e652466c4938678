"""process_madvise(2): advice on the pages of another process."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any, Final

ADVICE_NUMBERS: Final[dict[str, int]] = {"willneed": 3, "cold": 20, "pageout": 21}
"""MADV_WILLNEED, MADV_COLD, MADV_PAGEOUT (asm-generic/mman-common.h)."""
_SYSCALL: Final = 440
"""The number of process_madvise on every architecture (Linux 5.10)."""

Advise = Callable[[int, list[tuple[int, int]], int], int]
"""Takes a pidfd, (address, bytes) of ranges, and the advice; returns the bytes advised on."""


def process_madvise(pidfd: int, ranges: list[tuple[int, int]], advice: int) -> int:
    """Make the system call; return the bytes advised on.

    Raises:
        OSError: With the kernel's error, if the first range failed already.
    """

    class Range(ctypes.Structure):
        _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))

    vector = (Range * len(ranges))(*(Range(*r) for r in ranges))
    libc = ctypes.CDLL(None, use_errno=True)
    number: Any = ctypes.c_long(_SYSCALL)
    done = int(
        libc.syscall(number, ctypes.c_int(pidfd), vector, ctypes.c_size_t(len(ranges)), advice, 0)
    )
    if done < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return done
