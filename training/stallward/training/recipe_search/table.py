"""The trials of a search as a table, and what it comes to."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from stallward.training.recipe_search.trials import Trial, TrialLog, write_whole

TABLE_FILE: Final = "trials.md"


def write_table(folder: Path, log: TrialLog) -> None:
    """Write the table as Markdown, with the errors of trials that failed."""
    headers, rows = table(log)
    lines = [headers, ["---"] * len(headers), *rows]
    text = "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"
    errors = [f"Trial {t.number} failed: {t.error}" for t in log.trials if t.state == "failed"]
    write_whole(folder / TABLE_FILE, "\n".join([text, *errors, comparison(log)]) + "\n")


def table(log: TrialLog) -> tuple[list[str], list[list[str]]]:
    """The headers and rows of the trials, the best first."""
    names = list(log.trials[0].settings) if log.trials else []
    headers = [
        "trial", *names, "state", "decisions", "merit", "validation low", "fresh merit", "s",
    ]  # fmt: skip
    return headers, [_row(trial) for trial in sorted(log.trials, key=_order)]


def comparison(log: TrialLog) -> str:
    """Whether a trial was better than the recipe that was searched around, in one sentence."""
    best, base = log.best(), log.trial(0)
    if best is None or best.worth is None:
        return "No trial has finished."
    if base is None or base.worth is None:
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
        *(f"{value:.4g}" for value in trial.settings.values()),
        trial.state,
        f"{trial.decisions:,}",
        *("" if value is None else f"{value:.3f}" for value in figures),
        f"{trial.seconds:.0f}",
    ]
