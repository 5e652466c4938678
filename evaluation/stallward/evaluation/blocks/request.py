"""The request for a block, and the interface of what runs it: a live sandbox or a twin."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Protocol

import numpy as np

from stallward.env.recording.run_info import NodeInfo
from stallward.evaluation.arms import Arm, file_of
from stallward.evaluation.errors import ComparisonError

Condition = Literal["alone", "together", "ample", "background"]

NO_ARM: Final = Arm(label="none", spec="none")
"""The arm of the reference conditions: the daemon watches and does nothing."""

MOST_STEAL_SHARE: Final = 0.02
"""The largest steal time of a valid block, as a share. A quiet host takes 0 to 0.7 %. A busy one
takes 2 to 15 % for half a minute, in which latencies grow tenfold with every arm (measured on a
virtual machine with two processors)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """The request for one block."""

    condition: Condition
    """Which programs run, and with how much memory."""
    arm: Arm = NO_ARM
    """The arm that controls the node."""
    policy: Path | None = None
    """The policy file, for arms that run one."""
    slo_ms: float
    """The target that controllers are given."""
    duration_s: float
    """The measured length."""
    burn_in_s: float
    """The length of the burn-in before it."""
    seed: int
    """Seeds the arrivals, the background and the controller."""
    lift_budgets: bool = False
    """Whether the guard's pause budgets are lifted, whatever the arm."""
    for_training: bool = False
    """Whether to tick at the full rate even while the node is calm, and to leave out the timings
    of the loop."""
    probes: bool = True
    """Whether to probe for steal time before and after the block, which takes two seconds."""

    @property
    def policy_sha256(self) -> str:
        """The digest of the file that the arm decides by; empty for none."""
        file = file_of(self.arm, self.policy)
        return file_sha256(file) if file else ""


def file_sha256(path: Path) -> str:
    """The digest that identifies a file that an arm decides by."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbances:
    """The disturbances of a block that ran to its end."""

    oom_kills: int = 0
    """Number of OOM kills because the zone's memory ran out; any makes the block invalid. A kill
    under a limit of the arm is its own doing, and counts against it."""
    steal_share: float = 0.0
    """Share of steal time."""
    probed_steal_share: float | None = None
    """The larger share of steal time of two probes without I/O, just before the block and just
    after it; ``None`` if there were none."""

    @property
    def by_host(self) -> bool:
        """Whether the steal time was so high that the block measures the host, not the arm.

        Where the host emulates the disk, it takes the time for that from this machine. So steal
        time that is high only during the block is mostly that of the block's own I/O. (Another
        machine's that began and ended within the block is taken for it, too.)
        """
        quiet = self.probed_steal_share is not None and self.probed_steal_share <= MOST_STEAL_SHARE
        return self.steal_share > MOST_STEAL_SHARE and not quiet


class Runner(Protocol):
    """Runs blocks of one scenario, one at a time."""

    @property
    def facts(self) -> NodeInfo:
        """The node or the twin that blocks run on, as ``result.json`` describes it."""

    def run_block(self, request: RunRequest, out: Path) -> Disturbances:
        """Run one block and write its recording to ``out``, which does not exist yet."""


# ---------- Invalid blocks are run again: those whose zone ran out of memory, or with much steal time

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
