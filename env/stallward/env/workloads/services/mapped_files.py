"""Reads files that a server will map, so that their pages are in memory when it starts."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_MIB: Final = 1 << 20


def read_once(path: Path) -> int:
    """Read what a file holds, without its holes; return how many bytes that are."""
    size_bytes = 0
    with path.open("rb", buffering=0) as file:
        for start, end in _data_of(file.fileno()):
            file.seek(start)
            while block := file.read(min(_MIB, end - file.tell())):
                size_bytes += len(block)
    return size_bytes


def _data_of(fd: int) -> Iterator[tuple[int, int]]:
    """Generate start and end of each part of a file that is not a hole."""
    end = 0
    while True:
        try:
            start = os.lseek(fd, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # there is no more
                return
            raise
        end = os.lseek(fd, start, os.SEEK_HOLE)
        yield start, end
