"""The mappings of a process, as in /proc/PID/maps. Pure."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

_ADDRESSES: Final = 1 << 64
_NO_FILES: Final = (b"/memfd:", b"/SYSV", b"/dev/zero", b"/dev/shm/")
"""Names of shared memory, which the kernel keeps in swap, not in a file."""


@dataclass(frozen=True, slots=True)
class Mapping:
    """One mapping of a process."""

    start: int
    end: int
    permissions: bytes
    """Four letters, e.g. ``rw-p``; the last one is ``p`` for a private mapping."""
    device: bytes
    inode: int
    """0 for a mapping of no file."""
    name: bytes
    offset: int = 0
    """Where in the file it begins."""

    @property
    def length(self) -> int:
        """Its bytes."""
        return self.end - self.start

    @property
    def own(self) -> bool:
        """Whether it is private and can be written, so that its pages may be the process's own."""
        return self.permissions[1:2] == b"w" and self.permissions[3:] == b"p"

    @property
    def file(self) -> tuple[bytes, int] | None:
        """The device and the inode of the mapped file; ``None`` if it maps none."""
        if not self.inode or self.name.startswith(_NO_FILES):
            return None
        return self.device, self.inode

    @property
    def place(self) -> str:
        """Its name in /proc/PID/map_files."""
        return f"{self.start:x}-{self.end:x}"


def mappings(maps: bytes) -> Iterator[Mapping]:
    """Yield the mappings in /proc/PID/maps, by address; other lines are left out."""
    for line in maps.splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) < 5 or len(fields[1]) != 4 or not fields[4].isdigit():
            continue
        start, _, end = fields[0].partition(b"-")
        try:
            first, last, offset = int(start, 16), int(end, 16), int(fields[2], 16)
        except ValueError:
            continue
        if 0 <= first < last <= _ADDRESSES and len(fields[4]) < 20:
            name = fields[5] if len(fields) > 5 else b""
            yield Mapping(first, last, fields[1], fields[3], int(fields[4]), name, offset)


ADVICE_NUMBERS: Final[dict[str, int]] = {"willneed": 3, "cold": 20, "pageout": 21}
"""MADV_WILLNEED, MADV_COLD, MADV_PAGEOUT (asm-generic/mman-common.h)."""
_SYSCALL: Final = 440
"""The number of process_madvise on every architecture (Linux 5.10)."""

_LIBC: Final = ctypes.CDLL(None, use_errno=True)


class _Range(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


Advise = Callable[[int, list[tuple[int, int]], int], int]
"""Takes a pidfd, (address, bytes) of ranges, and the advice; returns the bytes advised on."""


def process_madvise(pidfd: int, ranges: list[tuple[int, int]], advice: int) -> int:
    """Make the system call; return the bytes advised on.

    Raises:
        OSError: With the kernel's error, if the first range failed already.
    """
    vector = (_Range * len(ranges))(*(_Range(*r) for r in ranges))
    number: Any = ctypes.c_long(_SYSCALL)
    count = ctypes.c_size_t(len(ranges))
    done = int(_LIBC.syscall(number, ctypes.c_int(pidfd), vector, count, advice, 0))
    if done < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return done
