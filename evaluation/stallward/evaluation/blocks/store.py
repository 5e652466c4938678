"""The directory of a comparison: it belongs to one comparison, and holds its blocks."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from stallward.env.recording.run_info import NodeInfo
from stallward.evaluation.blocks.plan import FinishedBlock, PlannedBlock, Settings
from stallward.evaluation.errors import PlanError
from stallward.evaluation.results.plan_file import PLAN_FILE, RESUME_OR_RENAME, claim
from stallward.evaluation.results.serialise import holds_object, load, load_if_there, save

BLOCK_FILE: Final = "block.json"
SPOILED_FILE: Final = "spoiled.json"
"""The file that counts how often each block was discarded as invalid (see ``rerun.py``), by the
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
