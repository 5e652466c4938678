"""The directory of a comparison: it belongs to one comparison, and holds its blocks."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from stallward.agent.schema.marks import Flat
from stallward.env.recording.run_info import NodeInfo
from stallward.evaluation.arms import REFERENCES, Arm
from stallward.evaluation.errors import PlanError
from stallward.evaluation.results.serialise import (
    PLAN_FILE,
    RESUME_OR_RENAME,
    claim,
    holds_object,
    load,
    load_if_there,
    save,
)

# ---------- The plan of a comparison: its blocks and their order.
# Every round holds one block of every condition (alone, ample, the background by itself, and
# every arm) in an order drawn from the seed, so that slow drifts of the machine affect all of
# them alike. A finished block is a directory with its final name; any other directory was
# interrupted and is removed.

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


# ---------- The directory of a comparison

BLOCK_FILE: Final = "block.json"
SPOILED_FILE: Final = "spoiled.json"
"""The file that counts how often each block was discarded as invalid (see ``Attempts``), by the
name of the block's directory."""
RUN_FILE: Final = "run.json"


class BlockStore:
    """The directory of a comparison.

    Args:
        root: The comparison's ``--out``; it is made if it does not exist.
        settings: The settings of the comparison.

    Raises:
        PlanError: If the directory holds another comparison, or anything else.
    """

    def __init__(self, root: Path, settings: Settings) -> None:
        self.root = root
        self.blocks = root / "blocks"
        self._made = [folder for folder in (root, *root.parents) if not folder.exists()]
        _claim(root, settings)
        self.blocks.mkdir(exist_ok=True)
        for partial in self.blocks.glob("*.partial"):
            shutil.rmtree(partial)

    def path(self, block: PlannedBlock) -> Path:
        """The directory of the finished block."""
        return self.blocks / block.directory

    def done(self, block: PlannedBlock) -> bool:
        """Whether the block was finished before, with the same seed."""
        finished = load_if_there(FinishedBlock, self.path(block) / BLOCK_FILE)
        recorded = holds_object(self.path(block) / RUN_FILE)
        return recorded and finished is not None and finished.block.seed == block.seed

    def open(self, block: PlannedBlock) -> Path:
        """The directory for the block's recording, which does not count until it is committed.

        The directory does not exist yet: writing a recording makes it.
        """
        self.discard(block)
        return self.blocks / f"{block.directory}.partial"

    def discard(self, block: PlannedBlock) -> None:
        """Remove the files of an interrupted or invalid block."""
        shutil.rmtree(self.blocks / f"{block.directory}.partial", ignore_errors=True)

    def invalid_runs(self, block: PlannedBlock) -> int:
        """How often the block was discarded as invalid, including earlier runs of the plan."""
        return self._invalid_runs().get(block.directory, 0)

    def _invalid_runs(self) -> Mapping[str, int]:
        return load_if_there(dict[str, int], self.root / SPOILED_FILE) or {}

    def note_invalid(self, block: PlannedBlock) -> None:
        """Discard an invalid block and count it, whatever the result of the next attempt."""
        counts = {**self._invalid_runs(), block.directory: self.invalid_runs(block) + 1}
        save(self.root / SPOILED_FILE, counts)
        self.discard(block)

    def commit(self, block: PlannedBlock, node: NodeInfo) -> Path:
        """Finish a block: write its description, and give its directory the final name.

        Args:
            block: The block.
            node: The node that it ran on.
        """
        partial = self.blocks / f"{block.directory}.partial"
        for file in partial.iterdir():  # what has its final name is complete after a power failure
            with file.open("rb") as opened:
                os.fsync(opened.fileno())
        save(partial / BLOCK_FILE, FinishedBlock(block=block, node=node))
        final = self.path(block)
        shutil.rmtree(final, ignore_errors=True)
        partial.rename(final)
        return final

    def forget_if_empty(self) -> None:
        """Remove the plan and the directories made for it if no block was finished."""
        if any(self.blocks.iterdir()) or (self.root / SPOILED_FILE).exists():
            return
        self.blocks.rmdir()
        (self.root / PLAN_FILE).unlink()
        for folder in self._made:
            if any(folder.iterdir()):
                return
            folder.rmdir()

    def node(self, block: PlannedBlock) -> NodeInfo:
        """The node that a finished block ran on.

        Raises:
            ResultError: If its file cannot be read.
        """
        return load(FinishedBlock, self.path(block) / BLOCK_FILE).node


def _claim(root: Path, settings: Settings) -> None:
    existing = claim(root, settings, "comparison")
    for key in Settings.__dataclass_fields__:
        existing_value, value = getattr(existing, key), getattr(settings, key)
        if existing_value != value:
            raise PlanError(
                f"{root} holds another comparison: its {key} is "
                f"{existing_value!r}, not {value!r}.",
                next_step=RESUME_OR_RENAME,
            )
