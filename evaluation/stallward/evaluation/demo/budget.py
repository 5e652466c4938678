"""How the demo divides its time between its stages. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

CALIBRATION_S: Final = 30.0
"""Shorter than the scenario's own: the target of a demonstration may be rough."""
BURN_IN_S: Final = 10.0
"""Controllers act on what they have seen: ``partition`` needs seconds until a program that
thrashes waits for its turn, and blocks that begin sooner show only that."""
SWITCH_S: Final = 2.8
"""Starting and stopping the programs of a block."""
SPARE_S: Final = 15.0
"""Kept for the report."""
CONDITIONS: Final = 8
"""Three references and five arms in every round."""
MIN_BLOCK_S: Final = 7.0
_FIT_SHARE: Final = 0.04
_TRAIN_SHARE: Final = 0.07
"""Enough to show the stage, not to train a policy as good as the shipped one."""
_MOST_ROUNDS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class StageBudget:
    """Seconds for the stages before the comparison."""

    fit_s: float
    train_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """The blocks of a comparison."""

    rounds: int
    block_s: float

    @property
    def live_s(self) -> float:
        """How long they take on a node, with the block that finds the target."""
        around_s = BURN_IN_S + SWITCH_S
        return CONDITIONS * self.rounds * (self.block_s + around_s) + self.calibration_s

    @property
    def calibration_s(self) -> float:
        """How long the block takes that finds the target, before the first round."""
        return max(self.block_s, CALIBRATION_S) + BURN_IN_S + SWITCH_S


TWIN_BLOCKS: Final = Blocks(rounds=4, block_s=30.0)
"""Blocks of the twin take less time than they simulate."""


def plan_stages(total_s: float) -> StageBudget:
    """Divide the time of the whole demo; what is left is for the comparison."""
    return StageBudget(fit_s=_FIT_SHARE * total_s, train_s=_TRAIN_SHARE * total_s)


def plan_live_blocks(left_s: float) -> Blocks:
    """Choose the live blocks that fit into the time left: many rounds before long blocks.

    More rounds narrow the intervals more than longer blocks do. There is at least one round of
    blocks of the least length, even where that takes longer than ``left_s``.
    """
    around_s = BURN_IN_S + SWITCH_S
    usable_s = left_s - SPARE_S
    for rounds in range(_MOST_ROUNDS, 0, -1):
        count = CONDITIONS * rounds
        # The block that finds the target is as long as the others, but not under its minimum.
        each_s = min(usable_s / (count + 1), (usable_s - CALIBRATION_S - around_s) / count)
        if each_s - around_s >= MIN_BLOCK_S:
            return Blocks(rounds=rounds, block_s=each_s - around_s)
    return Blocks(rounds=1, block_s=MIN_BLOCK_S)
