"""What was seen of a process: the content of ``result.json``."""

from __future__ import annotations

from dataclasses import dataclass

from stallward.lens.resident.series import Clock, EndedBy


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingFigures:
    """All mappings of one file or one name."""

    name: str
    """The file, a name of the kernel such as ``[heap]``, or ``[anonymous]``."""
    mapped_pages: int
    """Pages of address space at the end."""
    present_pages: int
    """Pages in memory at the end."""
    peak_present_pages: int
    swapped_pages: int
    """Pages in swap at the end."""
    mean_referenced_pages: float | None
    """Pages touched in the longest windows, in the mean over these; ``None`` without windows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSize:
    """How many pages were touched in windows of one length."""

    window: float
    """The length in seconds."""
    windows: int
    """How many there were."""
    mean_pages: float
    peak_pages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidentResult:
    """All that was seen of a process."""

    schema: int = 1
    source: str
    """The command, or ``process PID``."""
    pid: int
    clock: Clock
    """What time is counted in."""
    page_bytes: int
    page_tables_by: str
    """How page tables were read: ``scan`` (PAGEMAP_SCAN) or ``read`` (/proc/PID/pagemap)."""
    referenced_by: str | None
    """How touched pages were found: ``clear_refs``; ``None`` if that was not asked for."""
    ended_by: EndedBy
    error: str | None
    """Why it ended early; all else is of what came before."""
    looks: int
    time: float
    """From the first look to the last."""
    look_ms: float
    """The mean time that a look took."""
    clear_ms: float | None
    """The mean time that it took to clear the referenced bits."""
    peak_present_pages: int
    peak_swapped_pages: int
    peak_reserved_pages: int
    last_present_pages: int
    last_file_pages: int
    """Those of them that belong to a file or to shared memory."""
    windows: tuple[WindowSize, ...]
    """The working set against the length of the window, by length."""
    mappings: tuple[MappingFigures, ...]
    """Those with the most present pages first."""
