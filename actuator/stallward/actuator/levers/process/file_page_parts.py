"""What the actions on file pages need of a node, and why it is missing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from stallward.actuator.errors import KernelFileError
from stallward.actuator.kernel.memory.file_cache import why_no_cachestat
from stallward.actuator.levers.process.file_victims import first_mapping, open_mapped
from stallward.actuator.levers.process.page_advice import why_no_advice
from stallward.agent.file_pages import FilePages

CACHE: Final = "cache"
"""Counting the cached pages of a file, and writing it back."""
CLEAR: Final = "clear"
"""Clearing the referenced bits."""
ADVICE: Final = "advice"
"""Advice for the pages of other processes."""
_NO_CLEAR: Final = "no /proc/PID/clear_refs that can be written (CONFIG_PROC_PAGE_MONITOR)"


def why_no_file_pages(proc: Path) -> dict[str, str]:
    """Say why :data:`CACHE`, :data:`CLEAR` or :data:`ADVICE` cannot be had here, if so."""
    reasons = {
        CACHE: why_no_cachestat() or _why_no_map_files(proc),
        CLEAR: "" if os.access(proc / "self" / "clear_refs", os.W_OK) else _NO_CLEAR,
        ADVICE: why_no_advice(proc),
    }
    return {part: why for part, why in reasons.items() if why}


def _why_no_map_files(proc: Path) -> str:
    """Say why mapped files cannot be opened; empty if they can."""
    me = os.getpid()
    try:
        first = first_mapping(proc, me)
        if first is not None and first.file is not None:
            os.close(open_mapped(proc, me, first))
    except (OSError, KernelFileError):
        return "opening /proc/PID/map_files needs CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN"
    return ""


def why_not(wanted: FilePages, missing: Mapping[str, str]) -> str:
    """Say why something cannot be done to file pages here; empty if it can."""
    return next((missing[part] for part in parts_of(wanted) if part in missing), "")


def parts_of(wanted: FilePages) -> tuple[str, ...]:
    """The parts of the lever that something wanted needs."""
    parts = []
    if wanted.victim == "largest-file" or wanted.writeback or wanted.action == "flush":
        parts.append(CACHE)
    if wanted.action == "clear":
        parts.append(CLEAR)
    elif wanted.action != "flush":
        parts.append(ADVICE)
    return tuple(parts)
