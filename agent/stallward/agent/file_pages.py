"""What a desired state may have done to the file pages of processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

FileAction = Literal[
    "flush", "clear", "cold", "pageout", "mark", "activate", "activate-mark", "willneed"
]
"""What is done to the file pages of a process: written back where they are dirty, taken for
unreferenced, the next to be reclaimed, reclaimed now; where they are in memory, marked as used,
moved to the active list, or both; or read in."""

Victim = Literal["largest-file", "largest-size", "next", "most-run", "protected"]
"""Whose file pages: of the background process behind whose first mapping the file with most
cached pages is; of the one with the largest address space; of the runnable process that has had
least or most processor time; or of the protected application."""

FileScope = Literal["first", "all"]
"""The pages of the file behind a process's first mapping (its program), or of all its files."""

MARKS: Final[Mapping[FileAction, int]] = {"mark": 1, "activate": 2, "activate-mark": 3}
"""How often a page is used for an action: the second use moves it to the active list, where it is
not yet referenced again (``mark_page_accessed`` in the kernel)."""

HARMLESS_FILE_ACTIONS: Final[frozenset[FileAction]] = frozenset({*MARKS, "willneed"})
"""What may be done to the protected application's pages, too."""

GRAB_PAGES: Final = (16, 256, 512)
"""How many pages are handled in one go, as in the kernel patches that these actions come from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePages:
    """What is done to file pages at every tick, for as long as it is wanted.

    The lever looks for the victim anew each time, as the kernel patches of the Birkbeck thesis do
    (docs/explanation/working-set.md). Nothing of it needs to be undone.
    """

    action: FileAction
    victim: Victim
    scope: FileScope = "first"
    grab_pages: int = 256
    """One of :data:`GRAB_PAGES`. The kernel clears by 512, whatever is wanted."""
    writeback: bool = False
    """Whether dirty pages of the victim's first file are written back before."""
