"""Invalid blocks are run again: those whose zone ran out of memory, or with much steal time."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from stallward.evaluation.blocks.request import Disturbances, Runner, RunRequest
from stallward.evaluation.errors import ComparisonError

ATTEMPTS: Final = 4
"""How often a block is tried. If only steal time is too high, the last attempt is kept."""


def is_invalid(disturbances: Disturbances, attempt: int) -> bool:
    """Whether a block is invalid after its ``attempt``, counted from 1: it must not be kept."""
    # On a host that is always busy the last attempt is kept; the recording has its steal time.
    return disturbances.oom_kills > 0 or (disturbances.by_host and attempt < ATTEMPTS)


def never_valid(name: str) -> ComparisonError:
    """The error for a block that was invalid at every attempt."""
    return ComparisonError(
        f"{name} was invalid {ATTEMPTS} times. The last time the kernel killed because the memory "
        "of the whole sandbox ran out, and not because of a limit that the arm had set.",
        next_step="Give the sandbox of the scenario more memory or swap.",
    )


def run_undisturbed(runner: Runner, request: RunRequest, out: Path, name: str) -> None:
    """Run a block until it is valid, and keep that recording in ``out``, which must not exist.

    Raises:
        ComparisonError: If no attempt is valid; the message calls the block ``name``.
        StallwardError: If the block cannot be run.
    """
    for attempt in range(1, ATTEMPTS + 1):
        if not is_invalid(runner.run_block(request, out), attempt):
            return
        shutil.rmtree(out)
    raise never_valid(name)
