"""What is asked of whatever runs blocks: a live sandbox or the twin."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Protocol

from stallward.env.recording.run_info import NodeInfo
from stallward.evaluation.arms import Arm

Condition = Literal["alone", "together", "ample", "background"]

NO_ARM: Final = Arm(label="none", spec="none")
"""What controls the reference conditions: the daemon watches and does nothing."""

MOST_STOLEN_SHARE: Final = 0.02
"""A quiet host takes 0 to 0.7 %, a busy one 2 to 15 % for half a minute, in which latencies grow
tenfold with every arm (measured on a virtual machine with two processors)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """One block to be run.

    Args:
        condition: What runs, and with how much memory.
        arm: Who controls it.
        policy: The policy file of arms that run one.
        slo_ms: What controllers are told the target is.
        duration_s: Measured length.
        burn_in_s: Length before that.
        seed: Seeds the arrivals, the background and the controller.
        lift_budgets: Lift the guard's pause budgets, whatever the arm.
        for_training: Tick at the full rate also while the node is calm, and keep nothing of what
            the loop says of itself.
    """

    condition: Condition
    arm: Arm = NO_ARM
    policy: Path | None = None
    slo_ms: float
    duration_s: float
    burn_in_s: float
    seed: int
    lift_budgets: bool = False
    for_training: bool = False

    @property
    def policy_sha256(self) -> str:
        """Which policy, or twin to plan with, the arm runs; empty for none."""
        return file_sha256(self.policy) if self.policy else ""


def file_sha256(path: Path) -> str:
    """The digest by which a policy, or a twin to plan with, is told from others."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Troubles:
    """What speaks against a block that ran to its end.

    Args:
        oom_kills: Memory-group OOM kills; not 0 means that the block is invalid.
        stolen_share: Share of the processors' time that the host gave to others.
    """

    oom_kills: int = 0
    stolen_share: float = 0.0

    @property
    def stolen(self) -> bool:
        """Whether so much was stolen that the block says more of the host than of its arm."""
        return self.stolen_share > MOST_STOLEN_SHARE


class Runner(Protocol):
    """Runs blocks of one scenario, one at a time."""

    @property
    def facts(self) -> NodeInfo:
        """Where blocks run, the node or the twin, as ``result.json`` says it."""

    def run_block(self, request: RunRequest, out: Path) -> Troubles:
        """Run one block and write its recording to ``out``, which does not exist yet."""
