"""Blocks that say more of the kernel or of the host than of their arm are run again."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from stallward.evaluation.blocks.request import Runner, RunRequest, Troubles
from stallward.evaluation.errors import ComparisonError

ATTEMPTS: Final = 4
"""After so many the last one stays where the host is never quiet."""


def is_spoiled(troubles: Troubles, attempt: int) -> bool:
    """Whether a block has to be run again, or given up, after its ``attempt``, the first is 1."""
    # A host that is never quiet is measured all the same; what is written says so.
    return troubles.oom_kills > 0 or (troubles.stolen and attempt < ATTEMPTS)


def given_up(name: str) -> ComparisonError:
    """What is said of a block that was spoiled every time."""
    return ComparisonError(
        f"{name} was invalid {ATTEMPTS} times, the last time for memory-group OOM kills.",
        next_step="Give the sandbox of the scenario more memory or swap.",
    )


def run_undisturbed(runner: Runner, request: RunRequest, out: Path, name: str) -> None:
    """Run a block until it is valid and leave its recording in ``out``, which must not exist.

    Raises:
        ComparisonError: If it never was; ``name`` says which.
        StallwardError: If it cannot be run.
    """
    for attempt in range(1, ATTEMPTS + 1):
        if not is_spoiled(runner.run_block(request, out), attempt):
            return
        shutil.rmtree(out)
    raise given_up(name)
