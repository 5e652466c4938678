"""A directory of blocks: claimed, written and read again."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from stallward.evaluation.blocks.plan import PlannedBlock, Settings
from stallward.evaluation.errors import PlanError

PLAN_FILE: Final = "plan.json"


BLOCK_FILE: Final = "block.json"


SPOILED_FILE: Final = "spoiled.json"
"""How often each block was thrown away (see ``rerun``), by its directory."""


RUN_FILE: Final = "run.json"


class BlockStore:
    """The directory of a comparison.

    Args:
        root: ``--out`` of the comparison; made if it is not there.
        settings: What is being compared.

    Raises:
        PlanError: If the directory holds another comparison, or something that is none.
    """

    def __init__(self, root: Path, settings: Settings) -> None:
        self.root = root
        self.blocks = root / "blocks"
        self._made = [folder for folder in (root, *root.parents) if not folder.exists()]
        _claim(root, settings)
        self.blocks.mkdir(exist_ok=True)
        for left in self.blocks.glob("*.partial"):
            shutil.rmtree(left)

    def path(self, block: PlannedBlock) -> Path:
        """Where the finished block lies."""
        return self.blocks / block.directory

    def done(self, block: PlannedBlock) -> bool:
        """Whether the block was finished before, with the same seed."""
        facts = read_json(self.path(block) / BLOCK_FILE)
        run = read_json(self.path(block) / RUN_FILE)
        return run is not None and facts is not None and facts.get("seed") == block.seed

    def open(self, block: PlannedBlock) -> Path:
        """Where the block's recording is to be written; it does not count until committed.

        Nothing is there yet: a recording makes its own directory.
        """
        self.discard(block)
        return self.blocks / f"{block.directory}.partial"

    def discard(self, block: PlannedBlock) -> None:
        """Throw away what an interrupted or invalid block left."""
        shutil.rmtree(self.blocks / f"{block.directory}.partial", ignore_errors=True)

    def spoiled(self, block: PlannedBlock) -> int:
        """How often the block was thrown away as invalid, in earlier runs of the plan, too."""
        return int((read_json(self.root / SPOILED_FILE) or {}).get(block.directory, 0))

    def note_spoiled(self, block: PlannedBlock) -> None:
        """Throw an invalid block away and remember it, whatever becomes of the next attempt."""
        counts = read_json(self.root / SPOILED_FILE) or {}
        counts[block.directory] = self.spoiled(block) + 1
        write_json(self.root / SPOILED_FILE, counts)
        self.discard(block)

    def commit(self, block: PlannedBlock, facts: Mapping[str, Any]) -> Path:
        """Finish a block: its facts are written and its directory takes its final name."""
        partial = self.blocks / f"{block.directory}.partial"
        write_json(partial / BLOCK_FILE, {**asdict(block), **facts})
        final = self.path(block)
        shutil.rmtree(final, ignore_errors=True)
        partial.rename(final)
        return final

    def forget_if_empty(self) -> None:
        """Take the plan and the directories made for it away again if no block was finished."""
        if any(self.blocks.iterdir()) or (self.root / SPOILED_FILE).exists():
            return
        self.blocks.rmdir()
        (self.root / PLAN_FILE).unlink()
        for folder in self._made:
            if any(folder.iterdir()):
                return
            folder.rmdir()

    def facts(self, block: PlannedBlock) -> Mapping[str, Any]:
        """What was written down when the block was committed."""
        return read_json(self.path(block) / BLOCK_FILE) or {}


def _claim(root: Path, settings: Settings) -> None:
    wanted = json.loads(json.dumps(asdict(settings)))
    if root.is_file():
        raise PlanError(f"{root} is a file.", next_step="Name a directory with --out.")
    existing = read_json(root / PLAN_FILE)
    if existing is None:
        if root.exists() and any(root.iterdir()):
            raise PlanError(
                f"{root} is not empty and holds no comparison.",
                next_step="Name an empty or a new directory with --out.",
            )
        root.mkdir(parents=True, exist_ok=True)
        write_json(root / PLAN_FILE, wanted)
        return
    for key, value in wanted.items():
        if existing.get(key, "") != value:  # older plans lack what they did not depend on
            raise PlanError(
                f"{root} holds another comparison: its {key} is {existing.get(key)!r}, "
                f"not {value!r}.",
                next_step="Repeat its settings to resume it, or name another directory.",
            )


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON object, or ``None`` where there is no readable one."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON object so that a reader sees all of it or the old one."""
    text = json.dumps(value, indent=2, allow_nan=False)
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
