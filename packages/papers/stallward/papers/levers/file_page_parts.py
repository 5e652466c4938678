"""What the actions on file pages need of a node, and why it is missing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from stallward.actuator.errors import KernelFileError
from stallward.actuator.levers.process.page_advice import why_no_advice
from stallward.agent.controller import Need, needs_of_file_pages
from stallward.agent.file_pages import FilePages
from stallward.papers.levers.file_cache import why_no_cachestat
from stallward.papers.levers.file_victims import first_mapping, open_mapped


def why_no_file_pages(proc: Path) -> dict[Need, str]:
    """Say what of the lever cannot be used here, each with the reason."""
    reasons = {
        Need.FILE_CACHE: why_no_cachestat() or _why_no_map_files(proc),
        Need.REFERENCED_BITS: _why_no_clear_refs(proc),
        Need.FILE_ADVICE: why_no_advice(proc),
    }
    return {need: why for need, why in reasons.items() if why}


def _why_no_clear_refs(proc: Path) -> str:
    if os.access(proc / "self" / "clear_refs", os.W_OK):
        return ""
    return "clear_refs of processes cannot be written (CONFIG_PROC_PAGE_MONITOR)"


def _why_no_map_files(proc: Path) -> str:
    """Say why mapped files cannot be opened; empty if they can."""
    me = os.getpid()
    try:
        first = first_mapping(proc, me)
        if first is not None and first.file is not None:
            os.close(open_mapped(proc, me, first))
    except (OSError, KernelFileError):
        return "opening map_files of processes needs CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN"
    return ""


def why_not(wanted: FilePages, missing: Mapping[Need, str]) -> str:
    """Say why something cannot be done to file pages here; empty if it can."""
    return next((missing[need] for need in needs_of_file_pages(wanted) if need in missing), "")
