"""The plan of a comparison: its blocks and their order.

Every round holds one block of every condition (alone, ample, the background by itself, and
every arm) in an order drawn from the seed, so that slow drifts of the machine affect all of
them alike. A finished block is a directory with its final name; any other directory was
interrupted and is removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from stallward.agent.schema.marks import Flat
from stallward.env.recording.run_info import NodeInfo
from stallward.evaluation.arms import REFERENCES, Arm
from stallward.evaluation.errors import PlanError

CALIBRATION_ROUND: Final = 0
"""The round of the block that only measures the target; the others count from 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a comparison; a directory can only be resumed with the same settings.

    The number of rounds is not one of them: rounds can be added to a finished comparison.
    """

    scenario: str
    scenario_sha256: str
    mode: str
    arms: tuple[str, ...]
    block_s: float
    burn_in_s: float
    seed: int
    policy_sha256: str = ""
    twin_sha256: str = ""
    """Digest of the fitted twin's file; empty for live comparisons."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBlock:
    """One block of a plan."""

    round: int
    position: int
    """Position in its round, from 0."""
    condition: str
    """``alone``, ``ample``, ``background`` or the label of an arm."""
    slug: str
    seed: int
    """Seeds the arrivals and the background; the same for all blocks of a round."""

    @property
    def directory(self) -> str:
        """Name of the block's directory."""
        return f"r{self.round:03d}-{self.slug}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedBlock:
    """A finished block and the node that it ran on: the content of ``block.json``."""

    block: Flat[PlannedBlock]
    node: NodeInfo


def plan_blocks(
    arms: Sequence[Arm], rounds: int, seed: int, references: Sequence[str] = REFERENCES
) -> tuple[PlannedBlock, ...]:
    """Plan ``rounds`` rounds; a longer plan begins with the rounds of a shorter one.

    Args:
        arms: The arms.
        rounds: How many rounds.
        seed: Seeds the order of each round, and its blocks.
        references: The reference conditions; without a background, it has no block by itself.

    Raises:
        PlanError: If there is no round, or an arm has the name of a reference condition.
    """
    if rounds < 1:
        raise PlanError(
            f"{rounds} blocks cannot be compared.", next_step="Use --blocks 3 or more."
        )
    for arm in arms:
        if arm.slug in REFERENCES:
            raise PlanError(f"An arm cannot be called {arm.label!r}: every round has one already.")
    conditions = [(name, name) for name in references] + [(a.label, a.slug) for a in arms]
    blocks = []
    for number in range(1, rounds + 1):
        rng = np.random.default_rng([seed, number])
        block_seed = int(rng.integers(1, 2**31))
        for position, index in enumerate(rng.permutation(len(conditions))):
            label, slug = conditions[index]
            blocks.append(
                PlannedBlock(
                    round=number, position=position, condition=label, slug=slug, seed=block_seed
                )
            )
    return tuple(blocks)
