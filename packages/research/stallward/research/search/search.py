"""A search of training recipes, as the command calls it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from stallward.agent.errors import UsageError
from stallward.env.twin.inputs.fitted import FittedTwin
from stallward.research.errors import SearchError
from stallward.research.search.run import Runner, Search, run_trial
from stallward.research.search.space import Space, recipe_of
from stallward.research.search.study import Study
from stallward.research.search.trials import JOURNAL_FILE, TRIALS_FILE, Trial, TrialLog
from stallward.training.parallel.executor import Executor
from stallward.training.parallel.local_processes import LOCAL
from stallward.training.parallel.versions import versions_here
from stallward.training.pipeline.outputs import check_writable
from stallward.training.pipeline.train import load_twins, refuse_held_out, validation_twins
from stallward.training.ppo.args import Args
from stallward.training.ppo.preparation import prepare, recipe_sha256
from stallward.training.ppo.recipe import recipe_text, recipe_values
from stallward.training.progress import Report, silent
from stallward.training.synthetic_scenarios import SyntheticScenarioSettings

RECIPE_FILE: Final = "recipe.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a search found."""

    log: TrialLog
    """All trials."""
    recipe: Path
    """The file of the best recipe."""


def search_recipes(
    space: Space,
    twins: Sequence[str],
    *,
    out: Path,
    judged_on: Sequence[str] = ("default",),
    synthetic: int = 3,
    judged_nodes: int = 256,
    seed: int = 1,
    executor: Executor = LOCAL,
    report: Report = silent,
    store: Callable[[], None] = lambda: None,
) -> Found:
    """Search recipes; ``out`` becomes the directory of the search.

    If ``out`` holds an interrupted search of the same space, that one goes on.

    Args:
        space: What is searched.
        twins: The twins to train on, by file or name.
        out: The directory of the search.
        judged_on: The twins that trials are judged by, as for ``train_policy``.
        synthetic: Synthetic scenarios per twin.
        judged_nodes: Nodes over all validation twins that a finished trial is judged on.
        seed: Trials and trainings follow from it.
        executor: Runs the trials.
        report: Called with the progress.
        store: Called after a trial is over.

    Raises:
        StallwardError: If a twin is missing or held out, ``out`` is something else, or no trial
            finished.
    """
    _check(out)
    loaded = load_twins(twins)
    refuse_held_out(loaded)
    validation = validation_twins(judged_on)
    args = Args(
        **recipe_values(space.base),
        seed=seed,
        total_steps=space.budget.decisions,
        composing=SyntheticScenarioSettings(per_twin=synthetic),
        evaluation_episodes=judged_nodes,
    )
    identity = _identity(space, args, loaded, validation)
    out.mkdir(parents=True, exist_ok=True)
    study = Study(out, space, seed=seed, identity=identity)
    report("measuring what is allowed on the twins", 0.0)
    search = Search(space=space, args=args, prepared=prepare(loaded, validation, args))
    work = partial(run_trial, search)
    Runner(study, work, space, report=report, store=store).run(executor)
    log = study.log
    best = log.best()
    if best is None:
        raise _none_finished(log, space)
    provenance = _provenance(space, best, log.trials[0], args, search, loaded)
    recipe = out / RECIPE_FILE
    recipe.write_text(recipe_text(recipe_of(space, best.settings), provenance), encoding="utf-8")
    report("done", 1.0)
    return Found(log=log, recipe=recipe)


def _check(out: Path) -> None:
    """Refuse a directory of something else.

    Raises:
        UsageError: If ``out`` holds something else, or cannot be written.
    """
    check_writable(out)
    if any((out / name).exists() for name in (JOURNAL_FILE, TRIALS_FILE)):
        return
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} exists already.", next_step="Name a new directory with --out.")


def _identity(
    space: Space,
    args: Any,
    twins: Sequence[FittedTwin],
    validation: Sequence[FittedTwin],
) -> str:
    """A digest of what determines the trials; the time that they may take does not."""
    described = {
        "settings": {name: asdict(values) for name, values in space.settings.items()},
        "trials": space.budget.trials,
        "scheduler": asdict(space.scheduler),
        "sampler": asdict(space.sampler),
        "seed": args.seed,
        "training": recipe_sha256((*twins, *validation), args),
        "versions": versions_here(),
    }
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()


def _none_finished(log: TrialLog, space: Space) -> SearchError:
    failed = [trial for trial in log.trials if trial.error]
    if failed:
        return SearchError(
            f"No trial finished; {len(failed)} failed. Trial {failed[0].number}: "
            f"{failed[0].error}",
            next_step="Mend the cause; then the same command tries them again.",
        )
    return SearchError(
        f"No trial finished in budget.minutes = {space.budget.minutes:g}.",
        next_step="Take more minutes; then the same command goes on. Or take fewer decisions, and "
        "a new directory with --out.",
    )


def _provenance(
    space: Space,
    best: Trial,
    base: Trial,
    args: Any,
    search: Any,
    twins: Sequence[FittedTwin],
) -> dict[str, Any]:
    assert best.worth is not None  # it is finished
    found = {
        "search": f"Optuna {version('optuna')}, {space.sampler.kind}, {space.scheduler.kind}",
        "stallward": version("stallward"),
        "trials": space.budget.trials,
        "decisions": space.budget.decisions,
        "seed": args.seed,
        "trial": best.number,
        "searched": list(space.settings),
        "merit": round(best.worth.merit, 4),
        "fresh_merit": round(best.worth.fresh_merit, 4),
        "judged_on": search.prepared.selection.judged_on(),
        "twins": [twin.scenario.name for twin in twins],
    }
    if base.worth is not None:
        found["merit_of_trial_0"] = round(base.worth.merit, 4)
        found["fresh_merit_of_trial_0"] = round(base.worth.fresh_merit, 4)
    return found
