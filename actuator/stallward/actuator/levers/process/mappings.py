"""The mappings in /proc/PID/maps, and the ranges of addresses that advice is given for. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from stallward.agent.file_pages import FileScope

_ADDRESSES: Final = 1 << 64
_MOST_RANGES: Final = 1 << 16
"""The most ranges of one process; their list takes some 8 MB."""
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
    """Yield the mappings in /proc/PID/maps, by address; lines that are none are left out."""
    for line in maps.splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) < 5 or len(fields[1]) != 4 or not fields[4].isdigit():
            continue
        start, _, end = fields[0].partition(b"-")
        try:
            first, last = int(start, 16), int(end, 16)
        except ValueError:
            continue
        if 0 <= first < last <= _ADDRESSES and len(fields[4]) < 20:
            name = fields[5] if len(fields) > 5 else b""
            yield Mapping(first, last, fields[1], fields[3], int(fields[4]), name)


def pieces(found: Iterator[Mapping], most_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield (address, bytes) of mappings, in pieces of at most ``most_bytes``.

    A process may map terabytes that it never touches, so the pieces of one are limited.
    """
    left = _MOST_RANGES
    for mapping in found:
        last = min(mapping.end, mapping.start + left * most_bytes)
        for address in range(mapping.start, last, most_bytes):
            left -= 1
            yield address, min(most_bytes, mapping.end - address)


def file_ranges(
    found: Sequence[Mapping], scope: FileScope, grab_bytes: int
) -> list[tuple[int, int]]:
    """List (address, bytes) of a process's file pages, in grabs.

    Private mappings that can be written are left out: their pages may be the process's own.

    Args:
        found: All mappings of the process, by address.
        scope: Whether the pages of the first mapping's file are meant, or those of every file.
        grab_bytes: The most bytes of one grab.
    """
    first = found[0].file if found else None
    files = (
        mapping
        for mapping in found
        if mapping.file is not None
        and not mapping.own
        and (scope == "all" or mapping.file == first)
    )
    return list(pieces(files, grab_bytes))
