"""Finished searches, each in a file of its own, so that an interrupted command goes on."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from stallward.agent.control_law.thresholds import as_values, make_thresholds
from stallward.agent.errors import SchemaError, ThresholdError
from stallward.agent.schema.json_file import read_json_file
from stallward.agent.schema.read import read
from stallward.env.twin.inputs.exogenous import scenario_to_json
from stallward.env.twin.inputs.fitted import FittedTwin
from stallward.training.parallel.versions import versions_here
from stallward.training.selection.rollout import Outcome
from stallward.training.tuning.settings import Tunable, TuneSettings

_OF_THE_CHOICE: Final = ("seeds", "judged_episodes")
"""Settings of the choice between searches, in which no search has a part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The result of one search."""

    seed: int
    """The seed of the search."""
    thresholds: Any
    """The best thresholds, as the rule's dataclass."""
    outcome: Outcome
    """Their outcome on fresh nodes of the twins of the search."""
    steps: int
    """Decisions spent."""
    generations: int
    """Generations of the search."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _SearchFile:
    """The file of a finished search."""

    determined_by: str
    """A digest of everything that determines the search, except its seed."""
    seed: int
    thresholds: Mapping[str, float]
    outcome: Outcome
    steps: int
    generations: int


class KeptSearches:
    """The finished searches of one rule, with the same twins and settings and the same code.

    Args:
        folder: Where they are, beside those with other settings; with ``None`` none is kept.
        rule: The rule.
        twins: The twins to search on.
        settings: The settings of the searches.
    """

    def __init__(
        self,
        folder: Path | None,
        rule: Tunable,
        twins: Sequence[FittedTwin],
        settings: TuneSettings,
    ) -> None:
        self._folder, self._rule = folder, rule
        self._determined_by = _sha256(rule.name, twins, settings)

    def load(self, seed: int) -> SearchResult | None:
        """The search of a seed, if it is finished; one that cannot be read is none."""
        if self._folder is None:
            return None
        path = self._place(self._folder, seed)
        try:
            file = read(_SearchFile, read_json_file(path))
            thresholds = make_thresholds(self._rule.thresholds, file.thresholds, str(path))
        except (OSError, ValueError, SchemaError, ThresholdError):
            return None
        if (file.determined_by, file.seed) != (self._determined_by, seed):
            return None
        return SearchResult(
            seed=seed,
            thresholds=thresholds,
            outcome=file.outcome,
            steps=file.steps,
            generations=file.generations,
        )

    def save(self, result: SearchResult) -> None:
        """Write a finished search, whole or not at all."""
        if self._folder is None:
            return
        path = self._place(self._folder, result.seed)
        content = _SearchFile(
            determined_by=self._determined_by,
            seed=result.seed,
            thresholds=as_values(result.thresholds),
            outcome=result.outcome,
            steps=result.steps,
            generations=result.generations,
        )
        building = path.with_name(f".{path.name}.{os.getpid()}.partial")
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            building.write_text(json.dumps(asdict(content), indent=1) + "\n", encoding="utf-8")
            building.replace(path)
        finally:
            with contextlib.suppress(OSError):
                building.unlink()

    def _place(self, folder: Path, seed: int) -> Path:
        return folder / f"{self._rule.name}-seed-{seed}-{self._determined_by[:16]}.json"


def _sha256(rule: str, twins: Sequence[FittedTwin], settings: TuneSettings) -> str:
    """A digest of everything that determines a search, except its own seed."""
    described = {
        "rule": rule,
        "settings": {k: v for k, v in asdict(settings).items() if k not in _OF_THE_CHOICE},
        "twins": [
            [scenario_to_json(twin.scenario), [asdict(draw) for draw in twin.draws], twin.weights]
            for twin in twins
        ],
        "versions": versions_here(),
    }
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()
