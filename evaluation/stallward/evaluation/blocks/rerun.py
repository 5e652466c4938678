"""Invalid blocks are run again: those whose zone ran out of memory, or with much steal time."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import numpy as np

from stallward.evaluation.blocks.request import Disturbances, Runner, RunRequest
from stallward.evaluation.errors import ComparisonError

ATTEMPTS: Final = 4
"""How often a block is tried. If only steal time is too high, the last attempt is kept."""
_OWN_STEAL_RATIO: Final = 2.0
"""Steal time that differs by no more than this factor from the least of an arm is its own."""


class Attempts:
    """Decides which attempts at the blocks of one arm are valid.

    Steal time is not always the work of other machines. Where the host emulates the disk, it takes
    the time for that from the virtual machine: on one host 28 us for each read of 4 KiB. So an arm
    under which programs thrash may have 13 % in every block. Probes around the block mostly tell
    (``Disturbances.by_host``). Where they do not, what was seen at least is taken for the arm's
    own if it is seen again.

    Args:
        steal_shares: The steal time of earlier blocks of the arm that were kept.
        repeat_disturbed: Whether blocks with much steal time are invalid at all.
    """

    def __init__(
        self, steal_shares: Iterable[float] = (), *, repeat_disturbed: bool = True
    ) -> None:
        self._least_steal_share = min(steal_shares, default=np.inf)
        self._repeat_disturbed = repeat_disturbed

    def is_invalid(self, disturbances: Disturbances, attempt: int) -> bool:
        """Whether a block must not be kept after its ``attempt``, counted from 1."""
        share, least = disturbances.steal_share, self._least_steal_share
        self._least_steal_share = min(least, share)
        if disturbances.oom_kills > 0:
            return True
        if not self._repeat_disturbed:
            return False
        own = least / _OWN_STEAL_RATIO <= share <= least * _OWN_STEAL_RATIO
        # On a host that is always busy the last attempt is kept; the recording has its steal time.
        return disturbances.by_host and not own and attempt < ATTEMPTS


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
    attempts = Attempts()
    for attempt in range(1, ATTEMPTS + 1):
        if not attempts.is_invalid(runner.run_block(request, out), attempt):
            return
        shutil.rmtree(out)
    raise never_valid(name)
