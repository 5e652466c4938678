"""The trials of a search: what is known of each, and the table that users read."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from stallward.agent.schema.write import to_table

JOURNAL_FILE: Final = "trials.journal"
TRIALS_FILE: Final = "trials.json"
TABLE_FILE: Final = "trials.md"
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
    """How often it failed; each command tries it three times."""
    error: str = ""
    """Why it failed the last time."""
    seconds: float = 0.0
    """How long it ran, the last time."""

    @property
    def decisions(self) -> int:
        """Decisions until it was judged last."""
        return self.judgements[-1].decisions if self.judgements else 0

    @property
    def is_over(self) -> bool:
        """Whether it need not run again."""
        return self.state in {"finished", "stopped early"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialLog:
    """All that is known of a search."""

    identity: str
    """A digest of what determines the trials: the space, the twins and the seed."""
    spent_s: float = 0.0
    """The time of all commands until the last trial changed."""
    trials: tuple[Trial, ...] = ()
    """By number."""

    def best(self) -> Trial | None:
        """The finished trial with the highest merit; the first of them, if there are several."""
        finished = [trial for trial in self.trials if trial.worth is not None]
        return max(finished, key=lambda t: t.worth.merit if t.worth else 0.0, default=None)


def write_log(folder: Path, log: TrialLog) -> None:
    """Write the trials as JSON, and as a table in Markdown with the errors of those that failed."""
    _write_whole(folder / TRIALS_FILE, json.dumps(to_table(log), indent=1) + "\n")
    headers, rows = table(log)
    lines = [headers, ["---"] * len(headers), *rows]
    text = "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"
    errors = [f"Trial {t.number} failed: {t.error}" for t in log.trials if t.state == "failed"]
    _write_whole(folder / TABLE_FILE, "\n".join([text, *errors, comparison(log)]) + "\n")


def table(log: TrialLog) -> tuple[list[str], list[list[str]]]:
    """The headers and rows of the trials, the best first."""
    names = list(log.trials[0].settings) if log.trials else []
    headers = [
        "trial", *names, "state", "decisions", "merit", "validation low", "fresh merit", "s",
    ]  # fmt: skip
    return headers, [_row(trial) for trial in sorted(log.trials, key=_order)]


def comparison(log: TrialLog) -> str:
    """Whether a trial was better than the recipe that was searched around, in one sentence."""
    best = log.best()
    if best is None or best.worth is None:
        return "No trial has finished."
    base = log.trials[0]
    if base.worth is None:
        return f"Trial {best.number} is the best, and trial 0, the recipe itself, did not finish."
    if best.number == base.number:
        return (
            "No trial was better than trial 0, the recipe that was searched around: its merit is "
            f"{base.worth.merit:.3f}, and {base.worth.fresh_merit:.3f} on fresh nodes."
        )
    gained = best.worth.fresh_merit > base.worth.fresh_merit
    return (
        f"Trial {best.number} is the best: merit {best.worth.merit:.3f}, where trial 0, the "
        f"recipe that was searched around, has {base.worth.merit:.3f}. On fresh nodes it is "
        f"{'better' if gained else 'not better'}, {best.worth.fresh_merit:.3f} and "
        f"{base.worth.fresh_merit:.3f}. Trainings with other seeds differ as well: train with "
        "both recipes before you change one."
    )


def _order(trial: Trial) -> tuple[bool, float, int]:
    merit = trial.judgements[-1].merit if trial.judgements else float("-inf")
    return trial.worth is None, -(trial.worth.merit if trial.worth else merit), trial.number


def _row(trial: Trial) -> list[str]:
    worth = trial.worth
    latest = trial.judgements[-1].merit if trial.judgements else None
    figures = (worth.merit, worth.low, worth.fresh_merit) if worth else (latest, None, None)
    return [
        f"{trial.number}",
        *(f"{v:,}" if isinstance(v, int) else f"{v:.4g}" for v in trial.settings.values()),
        trial.state,
        f"{trial.decisions:,}",
        *("" if value is None else f"{value:.3f}" for value in figures),
        f"{trial.seconds:.0f}",
    ]


def _write_whole(path: Path, text: str) -> None:
    building = path.with_name(f".{path.name}.{os.getpid()}.partial")
    building.write_text(text, encoding="utf-8")
    building.replace(path)
