"""What became of one lever that was asked to change."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from stallward.agent.errors import StallwardError


@dataclass(frozen=True, slots=True, kw_only=True)
class LeverResult:
    """One attempt to move a lever."""

    lever: str
    """E.g. ``pause:hog0``, ``limit:hog1``, ``vm.swappiness``."""
    value: str
    """What is in force, as it was read back, or what was to be if it failed."""
    ok: bool = True
    error: str = ""
    """Why not; empty if ok."""
    took_ms: float = 0.0
    dry_run: bool = False
    """Nothing was changed: this is what would have been."""


def attempt(lever: str, value: str, action: Callable[[], object]) -> LeverResult:
    """Run ``action`` and say what became of it; typed errors and the kernel's are results."""
    started_s = time.perf_counter()
    error = ""
    try:
        action()
    except (StallwardError, OSError) as failure:
        error = str(failure) or type(failure).__name__
    took_ms = (time.perf_counter() - started_s) * 1e3
    return LeverResult(lever=lever, value=value, ok=not error, error=error, took_ms=took_ms)
