"""The steps from twins to a policy file or tuned thresholds, as the commands call them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from stallward.agent.control_law.thresholds import read_thresholds, thresholds_text
from stallward.agent.errors import UsageError
from stallward.env.errors import SplitError
from stallward.env.recording.split import Part, load_split
from stallward.env.twin.inputs.fitted import FittedTwin, load_fitted
from stallward.models.registry import find_thresholds, find_twin, rule_names, twin_names
from stallward.training.errors import TrainingError
from stallward.training.export.onnx_file import export_policy as export
from stallward.training.network.arrays import SEEDS_FOLDER
from stallward.training.parallel.executor import Executor
from stallward.training.parallel.local_processes import LOCAL
from stallward.training.parallel.storage import parts_of
from stallward.training.pipeline.fit import PART_USES
from stallward.training.pipeline.outputs import check_file, check_writable
from stallward.training.ppo.recipe import read_recipe, recipe_values
from stallward.training.progress import Report, silent
from stallward.training.selection.rollout import Arm
from stallward.training.synthetic_scenarios import SyntheticScenarioSettings
from stallward.training.tuning.settings import TUNABLE, TuneSettings, find_tunable

_LEARNING_SHARE: Final = 0.75
"""Share of the time for PPO; the rest goes to the search before it and the evaluation after it."""


def load_twins(names: Sequence[str], part: Part | None = "train") -> tuple[FittedTwin, ...]:
    """Load fitted twins by file or name.

    Args:
        names: Files or names; ``default`` stands for the shipped twins of ``part``, a directory
            for the twins of ``part`` in it.
        part: The part of the split; ``None`` for all.

    Raises:
        StallwardError: If a twin is missing or cannot be read.
    """
    twins = [twin for name in names for twin in _expand(name, part)]
    if not twins:
        raise TrainingError(
            f"There is no fitted twin to {PART_USES[part]} in {', '.join(names)}.",
            next_step="Fit one with `stallward fit recordings`.",
        )
    loaded = tuple(load_fitted(Path(find_twin(name))) for name in twins)
    for twin in loaded:
        twin.check_one_application()
    return loaded


def _expand(name: str, part: Part | None) -> Sequence[str]:
    """The twins that a name stands for."""
    if name == "default":
        return _in_part(twin_names(), part)
    if Path(name).is_dir():
        files = sorted(Path(name).glob("*.json"))
        kept = set(_in_part([file.stem for file in files], part))
        return [str(file) for file in files if file.stem in kept]
    return [name]


def _in_part(names: Sequence[str], part: Part | None) -> list[str]:
    """The names of those scenarios that belong to a part of the split."""
    split = load_split()
    return [name for name in names if part in (None, split.part_of_name(name))]


def validation_twins(names: Sequence[str]) -> tuple[FittedTwin, ...]:
    """The twins that the choice between seeds is made on.

    Without names, or for ``default`` without shipped validation twins, there are none: the choice
    is made on the training twins.

    Args:
        names: Files or names, as for :func:`load_twins`.

    Raises:
        StallwardError: If a twin is missing or cannot be read.
    """
    if not names or (list(names) == ["default"] and not _expand("default", "validation")):
        return ()
    return load_twins(names, "validation")


def _rules(thresholds: Sequence[Path]) -> dict[str, Arm]:
    """The tunable rules, with thresholds from the files given or else the shipped ones.

    Raises:
        UsageError: If a file is not named after a rule.
    """
    given = {path.stem: path for path in thresholds}
    for name in given.keys() - TUNABLE.keys():
        raise UsageError(
            f"{given[name]} has the name of no rule.",
            next_step=f"Call it one of {', '.join(f'{known}.toml' for known in TUNABLE)}.",
        )
    arms = {}
    for name, rule in TUNABLE.items():
        numbers = rule.thresholds()
        if name in given or name in rule_names():
            file = find_thresholds(given.get(name, name))
            numbers, _ = read_thresholds(file, rule.thresholds, name)
        arms[name] = rule.arm(numbers)
    return arms


def train_policy(
    twins: Sequence[str],
    *,
    out: Path,
    decisions: int | None = None,
    seconds: float | None = None,
    seeds: int = 1,
    judged_on: Sequence[str] = ("default",),
    thresholds: Sequence[Path] = (),
    recipe: Path | None = None,
    features: str = "basic",
    synthetic: int = 3,
    start: str | None = None,
    seed: int = 1,
    executor: Executor = LOCAL,
    report: Report = silent,
) -> Mapping[str, Any]:
    """Train a policy on fitted twins; ``out`` becomes the directory of the run.

    If ``out`` holds an interrupted run with the same settings, that run is resumed.

    Args:
        twins: The twins to train on, by file or name.
        out: The directory of the run.
        decisions: Decisions per seed, by default those of the recipe.
        seconds: The most time for all seeds; the result then depends on the machine's speed.
        seeds: The number of trainings, of which one is kept.
        judged_on: The twins that the kept training is chosen on, by file or name. ``default``
            stands for the shipped validation twins or, without any, for the training twins.
        thresholds: Files with the thresholds of rules that the card compares with, ``rule.toml``
            and ``pi.toml``; the shipped ones by default.
        recipe: The file of the recipe; the shipped one by default.
        features: What the policy reads of an observation, one of ``FEATURE_SETS``.
        synthetic: Synthetic scenarios per twin.
        start: The policy with which the training begins (:func:`.start.read_start`), by default
            ``partition``.
        seed: The first seed.
        executor: Runs one job for each seed.
        report: Called with the progress.

    Returns:
        The facts of the training, with what it was evaluated on.

    Raises:
        StallwardError: If a twin is missing or held out, ``out`` is something else, or the
            training cannot begin with ``start``.
    """
    if out.exists() and not (out / SEEDS_FOLDER).is_dir():
        raise UsageError(f"{out} exists already.", next_step="Name a new directory with --out.")
    check_writable(out)
    rules = _rules(thresholds)  # a wrong name is refused before twins are read, which takes longer
    loaded = load_twins(twins)
    refuse_held_out(loaded)
    from stallward.training.pipeline.start import read_start  # noqa: PLC0415 - torch
    from stallward.training.ppo.args import Args  # noqa: PLC0415 - torch takes seconds
    from stallward.training.ppo.saved import save_policy  # noqa: PLC0415 - torch takes seconds
    from stallward.training.ppo.train import train  # noqa: PLC0415 - torch takes seconds

    args = Args(
        **({} if recipe is None else recipe_values(read_recipe(recipe))),
        seed=seed,
        seeds=seeds,
        features=features,
        composing=SyntheticScenarioSettings(per_twin=synthetic),
    )
    if decisions is not None:
        args = replace(args, total_steps=decisions)
    if seconds is not None:
        args = replace(args, max_seconds=_LEARNING_SHARE * seconds)
    began = None if start is None else read_start(start, out)
    if began is not None:
        began.check(args)  # before a directory is made
    (out / SEEDS_FOLDER).mkdir(parents=True, exist_ok=True)
    result = train(
        loaded,
        args,
        report,
        judged_on=validation_twins(judged_on),
        rules=rules,
        folder=out,
        start=began,
        executor=executor,
    )
    save_policy(out, result.policy, args)
    return result.policy.provenance


def refuse_held_out(twins: Sequence[FittedTwin]) -> None:
    """Refuse twins that nothing may be learned on.

    Raises:
        SplitError: If one is of a scenario that is held out.
    """
    split = load_split()
    for twin in twins:
        part = split.part_of_name(twin.scenario.name)
        if part != "train":
            raise SplitError(
                f"The scenario {twin.scenario.name!r} is held out for {part}: nothing may be "
                "trained or tuned on its twin.",
                next_step="Name twins of other scenarios with --twin.",
            )


def tune_rule(
    rule: str,
    twins: Sequence[str],
    *,
    out: Path,
    decisions: int,
    seconds: float | None = None,
    seeds: int = 5,
    judged_on: Sequence[str] = ("default",),
    synthetic: int = 3,
    seed: int = 1,
    executor: Executor = LOCAL,
    report: Report = silent,
) -> None:
    """Search the thresholds of a rule on fitted twins, and write them to a file.

    Finished searches are kept beside ``out``, so that the same call goes on after an interruption.

    Args:
        rule: The name of the rule.
        twins: The twins to search on, by file or name.
        out: The file to write.
        decisions: The most decisions on the twins for each seed.
        seconds: The most time for all seeds, without the last evaluation.
        seeds: The number of searches, of which one is kept.
        judged_on: The twins that the kept search is chosen on, as for :func:`train_policy`.
        synthetic: Synthetic scenarios per twin.
        seed: The first seed.
        executor: Runs one job for each seed.
        report: Called with the progress.

    Raises:
        StallwardError: If there is no such rule, a twin is missing or held out, or ``out`` is
            another kind of file.
    """
    from stallward.training.tuning.search import tune  # noqa: PLC0415

    find_tunable(rule)
    check_file(out, kind="a file of thresholds", mark=b"[thresholds]")
    settings = TuneSettings(
        seed=seed,
        seeds=seeds,
        total_steps=decisions,
        max_seconds=float("inf") if seconds is None else seconds,
        composing=SyntheticScenarioSettings(per_twin=synthetic),
    )
    loaded = load_twins(twins)
    refuse_held_out(loaded)
    validation = validation_twins(judged_on)
    result = tune(
        rule,
        loaded,
        settings,
        report,
        judged_on=validation,
        folder=parts_of(out),
        executor=executor,
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    building = out.with_name(f".{out.name}.{os.getpid()}.partial")
    building.write_text(
        thresholds_text(result.thresholds, rule, result.provenance), encoding="utf-8"
    )
    building.replace(out)


def export_policy(run: Path, *, out: Path) -> Mapping[str, Any]:
    """Export the policy of a training run, with its card beside it.

    Returns:
        The facts of its training.

    Raises:
        StallwardError: If there is no policy in ``run``, it cannot be exported, or the file or its
            card would overwrite a file of another kind.
    """
    if out.suffix != ".onnx":
        raise UsageError(f"{out} does not end in .onnx.", next_step="Name a file that does.")
    check_file(out, kind="a policy", mark=b"stallward.schema")
    if not out.exists():
        check_file(
            out.with_suffix(".md"), kind="the card of a policy", mark=b"library_name: stallward"
        )
    from stallward.training.ppo.saved import load_policy  # noqa: PLC0415 - torch takes seconds

    policy = load_policy(run)
    export(policy, out)
    return policy.provenance
