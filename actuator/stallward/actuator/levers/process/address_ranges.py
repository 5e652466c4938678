"""The ranges of addresses of a process that advice is given for. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from stallward.actuator.kernel.memory.mappings import Mapping
from stallward.agent.file_pages import FileScope

_MOST_RANGES: Final = 1 << 16
"""The most ranges of one process; their list takes some 8 MB."""


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
    return list(pieces(iter(file_mappings(found, scope)), grab_bytes))


def file_mappings(found: Sequence[Mapping], scope: FileScope) -> list[Mapping]:
    """List the mappings of a process's files, of the first one or of all, as above."""
    first = found[0].file if found else None
    return [
        mapping
        for mapping in found
        if mapping.file is not None
        and not mapping.own
        and (scope == "all" or mapping.file == first)
    ]
