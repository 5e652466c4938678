"""The result of one attempt to move a lever."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from stallward.agent.errors import StallwardError


@dataclass(frozen=True, slots=True, kw_only=True)
class LeverResult:
    """The result of one attempt to move a lever."""

    lever: str
    """The lever's name, e.g. ``pause:hog0``, ``limit:hog1``, ``vm.swappiness``."""
    value: str
    """The value in force, as it was read back; after a failure, the value that was wanted."""
    ok: bool = True
    error: str = ""
    """Why it failed; empty if ok."""
    took_ms: float = 0.0
    dry_run: bool = False
    """Whether nothing was changed: the result says what would have been changed."""
    missing: bool = False
    """Whether the node does not have the lever, so that nothing failed; ``error`` says why."""


def attempt(lever: str, value: str, action: Callable[[], object]) -> LeverResult:
    """Run ``action`` and return its result; our errors and the kernel's become results as well."""
    started_s = time.perf_counter()
    error = ""
    try:
        action()
    except (StallwardError, OSError) as failure:
        error = str(failure) or type(failure).__name__
    took_ms = (time.perf_counter() - started_s) * 1e3
    return LeverResult(lever=lever, value=value, ok=not error, error=error, took_ms=took_ms)
