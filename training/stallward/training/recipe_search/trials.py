"""The trials of a search, and the file that keeps them: ``trials.json``."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

from stallward.agent.errors import SchemaError
from stallward.agent.schema.json_file import read_json_file
from stallward.agent.schema.read import read
from stallward.agent.schema.write import to_table
from stallward.training.errors import SearchError

TRIALS_FILE: Final = "trials.json"
State = Literal["waiting", "running", "finished", "stopped early", "out of time", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What a trial was worth on the way."""

    decisions: int
    """Decisions until then."""
    merit: float
    """The merit of its best actor until then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """What the policy of a finished trial is worth."""

    merit: float
    """The figure that decides between trials: that between seeds of ``stallward train``."""
    low: float
    """The lower confidence bound of the score in the worst scenario of the validation twins."""
    fresh_merit: float
    """The merit on nodes that had no part in the choice."""
    fresh_low: float
    """The bound on these nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One training."""

    number: int
    """From 0, which is the recipe that is searched around."""
    settings: Mapping[str, float]
    """The values of the settings that are searched."""
    state: State = "waiting"
    """What became of it."""
    judgements: tuple[Judgement, ...] = ()
    """In order."""
    worth: Worth | None = None
    """Once it is finished."""
    failures: int = 0
    """How often it failed; it is tried three times."""
    error: str = ""
    """Why it failed the last time."""
    seconds: float = 0.0
    """How long it ran, the last time."""

    @property
    def decisions(self) -> int:
        """Decisions until it was judged last."""
        return self.judgements[-1].decisions if self.judgements else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialLog:
    """All that is known of a search."""

    identity: str
    """A digest of what determines the trials: the space, the twins and the seed."""
    spent_s: float = 0.0
    """The time of all commands until the last trial changed."""
    trials: tuple[Trial, ...] = field(default=())
    """By number."""

    def trial(self, number: int) -> Trial | None:
        """The trial with a number, if it is known."""
        return next((trial for trial in self.trials if trial.number == number), None)

    def over(self) -> dict[int, Trial]:
        """The trials that need not run again, by number."""
        return {t.number: t for t in self.trials if t.state in ("finished", "stopped early")}

    def with_trial(self, trial: Trial) -> TrialLog:
        """This log with a trial as it is now."""
        others = [one for one in self.trials if one.number != trial.number]
        return replace(self, trials=tuple(sorted([*others, trial], key=lambda one: one.number)))

    def best(self) -> Trial | None:
        """The finished trial with the highest merit; the first of them, if there are several."""
        finished = [trial for trial in self.trials if trial.worth is not None]
        return max(finished, key=lambda t: t.worth.merit if t.worth else 0.0, default=None)


def number_of(trial_id: str) -> int:
    """The number of a trial by its name in Ray Tune, whose last part it is."""
    return int(trial_id.rpartition("_")[2])


def load_log(folder: Path) -> TrialLog | None:
    """The log in a folder; ``None`` if there is none.

    Raises:
        SearchError: If it cannot be read.
    """
    path = folder / TRIALS_FILE
    if not path.exists():
        return None
    try:
        return read(TrialLog, read_json_file(path), strict=False)
    except (OSError, ValueError, SchemaError) as error:
        raise SearchError(
            f"The trials in {path} cannot be read: {error}",
            next_step="Name a new directory with --out.",
        ) from error


def save_log(folder: Path, log: TrialLog) -> None:
    """Write the log, whole or not at all."""
    write_whole(folder / TRIALS_FILE, json.dumps(to_table(log), indent=1) + "\n")


def write_whole(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    building = path.with_name(f".{path.name}.{os.getpid()}.partial")
    building.write_text(text, encoding="utf-8")
    building.replace(path)
