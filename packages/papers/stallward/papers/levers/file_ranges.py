"""The ranges of addresses of a process's file pages. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from stallward.actuator.kernel.memory.mappings import Mapping
from stallward.actuator.levers.process.page_advice import pieces
from stallward.agent.file_pages import FileScope


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
