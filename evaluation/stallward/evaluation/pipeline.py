"""From recordings to a policy file: the steps of ``stallward.training`` as commands use them."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stallward.agent.control_law.thresholds import read_thresholds, thresholds_text
from stallward.env.errors import SplitError
from stallward.env.recording.recording import load_recording
from stallward.env.recording.run_info import load_run
from stallward.env.recording.split import Part, choose_part, load_split
from stallward.env.twin.inputs.fitted import FittedTwin, load_fitted, save_fitted
from stallward.evaluation.errors import EvaluationError, UsageError
from stallward.evaluation.outputs import check_file, check_writable
from stallward.evaluation.progress import Report, silent

if TYPE_CHECKING:
    from stallward.training.selection.selection import MakeAct

_LEARNING_SHARE: Final = 0.75
"""The rest goes to the search before training and the evaluation after it."""
_USES: Final = {"train": "learn from", "validation": "choose by", None: "look at"}


def recordings_of(places: Sequence[Path], scenario: str = "") -> list[Path]:
    """Every recording in ``places`` (recordings, or directories of them).

    Raises:
        EvaluationError: If a place does not exist.
        RecordingError: If one cannot be opened.
    """
    found: list[Path] = []
    for place in places:
        if not place.is_dir():
            raise EvaluationError(
                f"There is no directory {place}.", next_step="Name recordings or their directory."
            )
        inside = {file.parent for file in place.glob("**/run.json")}
        # Hidden ones are being written.
        found += sorted(path for path in inside if not path.name.startswith("."))
    return [path for path in found if scenario in ("", load_run(path).scenario)]


def fit_recordings(
    paths: Sequence[Path],
    *,
    seconds: float = math.inf,
    generations: int | None = None,
    seed: int = 1,
    start: FittedTwin | None = None,
    report: Report = silent,
) -> FittedTwin:
    """Fit a twin to recordings of one scenario.

    Args:
        paths: The recordings.
        seconds: At most.
        generations: At most, as many as usual by default.
        seed: Of the search.
        start: A twin at which it begins.
        report: Told how far it is.

    Raises:
        EvaluationError: If there is none, or they are of several scenarios.
        DatasetError: If they cannot describe the scenario.
    """
    # Not installed on a node.
    from stallward.training.twin_fit.fit import FitSettings, fit_scenario  # noqa: PLC0415

    recordings = [load_recording(path) for path in paths]
    scenarios = sorted({recording.run.scenario for recording in recordings})
    if len(scenarios) != 1:
        raise EvaluationError(
            f"One twin cannot be fitted to {len(scenarios)} scenarios ({', '.join(scenarios)})."
        )
    settings = FitSettings(max_seconds=seconds, seed=seed)
    if generations is not None:
        settings = replace(settings, generations=generations)
    return fit_scenario(recordings, settings, report, start=start)


def fit_twin(
    places: Sequence[Path],
    *,
    out: Path,
    seconds: float = math.inf,
    generations: int | None = None,
    leave_out: str = "",
    held_out: bool = False,
    seed: int = 1,
    start: FittedTwin | None = None,
    report: Report = silent,
) -> list[Path]:
    """Fit one twin for every scenario recorded in ``places``, those held out for tests left out.

    Args:
        places: Recordings, or directories of them.
        out: The file, where there is one scenario; else the directory of the files.
        seconds: At most, for all of them.
        generations: At most, of each fit; as many as usual by default.
        leave_out: Arm whose recordings are not used.
        held_out: Fit to those too (``stallward.env.recording.split``), to look at the twin.
        seed: Seeds the search.
        start: A fitted twin of the only scenario, at which the search begins.
        report: Told how far it is.

    Returns:
        The files written.

    Raises:
        StallwardError: If there is nothing to fit.
    """
    by_scenario: dict[str, list[Path]] = {}
    found = recordings_of(places)
    # By twins of the validation scenarios policies are chosen; they are trained on none of them.
    parts: tuple[Part, ...] = ("train", "validation")
    for path in learnable(found, parts=parts, held_out=held_out, report=report):
        run = load_run(path)
        if not leave_out or run.arm != leave_out or run.condition != "together":
            by_scenario.setdefault(run.scenario, []).append(path)
    if not by_scenario:
        raise EvaluationError(
            f"There is no recording in {', '.join(str(p) for p in places)}.",
            next_step="Record some with `stallward record`.",
        )
    if start is not None and list(by_scenario) != [start.scenario.name]:
        raise UsageError(
            f"The search cannot begin at the twin of {start.scenario.name!r}: these are "
            f"recordings of {', '.join(by_scenario)}.",
            next_step="Name recordings of that scenario, or begin without --start.",
        )
    if len(by_scenario) > 1 and out.suffix == ".json":
        raise UsageError(
            f"These are recordings of {len(by_scenario)} scenarios.",
            next_step="Name a directory with --out; it gets one twin for each.",
        )
    files = {
        scenario: out if out.suffix == ".json" else out / f"{scenario}.json"
        for scenario in by_scenario
    }
    for file in files.values():
        check_file(file, kind="a fitted twin", mark=b'"draws"')
    from stallward.training.parallel import side_by_side, time_for_each  # noqa: PLC0415

    each_s = time_for_each(seconds, len(files))
    fit = partial(fit_recordings, seconds=each_s, generations=generations, seed=seed, start=start)
    return side_by_side([partial(_fit_to, fit, files[n], by_scenario[n]) for n in files], report)


def learnable(
    paths: Sequence[Path],
    *,
    parts: Sequence[Part] = ("train",),
    held_out: bool = False,
    report: Report = silent,
) -> Sequence[Path]:
    """The recordings that may be learned from; those held out are taken out, saying so.

    Args:
        paths: Recordings.
        parts: Of the split, that are taken.
        held_out: Take all of them.
        report: Told what was left out.

    Raises:
        SplitError: If all of them are held out.
    """
    if held_out:
        return paths
    chosen = choose_part(paths, parts)
    if chosen.left_out and not chosen.kept:
        raise SplitError(
            f"All these recordings are held out: {chosen.note}.",
            next_step="Name recordings to train on; --held-out fits a twin to look at, "
            "which `stallward train` does not take.",
        )
    if chosen.left_out:
        report(chosen.note, 0.0)
    return chosen.kept


def _fit_to(
    fit: Callable[..., FittedTwin], file: Path, paths: Sequence[Path], report: Report
) -> Path:
    """Fit one scenario; its file is written at once, whatever becomes of the others."""
    save_fitted(file, fit(paths, report=report))
    return file


def load_twins(names: Sequence[str], part: Part | None = "train") -> tuple[FittedTwin, ...]:
    """Fitted twins by file or name.

    Args:
        names: ``default`` stands for the shipped ones of ``part``, a directory for those in it.
        part: Of the split; ``None`` for all.

    Raises:
        StallwardError: If one is not there or cannot be read.
    """
    from stallward.models.registry import find_twin  # noqa: PLC0415

    wanted = [twin for name in names for twin in _named(name, part)]
    if not wanted:
        raise EvaluationError(
            f"There is no fitted twin to {_USES[part]} in {', '.join(names)}.",
            next_step="Fit one with `stallward fit recordings`.",
        )
    return tuple(load_fitted(Path(find_twin(name))) for name in wanted)


def _named(name: str, part: Part | None) -> Sequence[str]:
    """The twins that a name stands for."""
    from stallward.models.registry import twin_names  # noqa: PLC0415

    if name == "default":
        return _of_part(twin_names(), part)
    if Path(name).is_dir():
        files = sorted(Path(name).glob("*.json"))
        kept = set(_of_part([file.stem for file in files], part))
        return [str(file) for file in files if file.stem in kept]
    return [name]


def _of_part(names: Sequence[str], part: Part | None) -> list[str]:
    """The scenarios of a part of the split."""
    split = load_split()
    return [name for name in names if part in (None, split.part_of_name(name))]


def _judges(names: Sequence[str]) -> tuple[FittedTwin, ...]:
    """Twins that decide between seeds; without a name, or any shipped, those learned from do."""
    if not names or (list(names) == ["default"] and not _named("default", "validation")):
        return ()
    return load_twins(names, "validation")


def _rules(thresholds: Sequence[Path], ticks_per_action: int) -> dict[str, MakeAct]:
    """The rules with their own thresholds where a file of that name is given, else the shipped.

    Raises:
        UsageError: If a file has the name of no rule.
    """
    from stallward.models.registry import find_thresholds  # noqa: PLC0415
    from stallward.training.tuning.search import TUNABLE  # noqa: PLC0415

    given = {path.stem: path for path in thresholds}
    for name in given.keys() - TUNABLE.keys():
        raise UsageError(
            f"{given[name]} has the name of no rule.",
            next_step=f"Call it one of {', '.join(f'{known}.toml' for known in TUNABLE)}.",
        )
    return {
        name: rule.maker(
            read_thresholds(find_thresholds(given.get(name, name)), rule.thresholds, name)[0],
            ticks_per_action,
        )
        for name, rule in TUNABLE.items()
    }


def train_policy(
    twins: Sequence[str],
    *,
    out: Path,
    decisions: int | None = None,
    seconds: float | None = None,
    seeds: int = 1,
    judged_on: Sequence[str] = ("default",),
    thresholds: Sequence[Path] = (),
    composed: int = 3,
    seed: int = 1,
    report: Report = silent,
) -> None:
    """Train a policy on fitted twins; ``out`` becomes the directory of the run.

    Where ``out`` holds an interrupted run of the same settings, what is missing of it is done.

    Args:
        twins: By file or name.
        out: Directory of the run.
        decisions: Per seed; the recipe's by default.
        seconds: At most, for all seeds; the result then depends on the machine's speed.
        seeds: Trainings, of which one is kept.
        judged_on: Twins by which it is chosen, by file or name; ``default`` are the shipped ones
            of the split's validation, or, without any, the twins trained on.
        thresholds: Of rules that the card shows beside the policy, ``rule.toml`` and ``pi.toml``;
            the shipped ones by default.
        composed: Scenarios of each twin's application beside other twins' programs.
        seed: The first one.
        report: Told how far it is.

    Raises:
        StallwardError: If a twin is missing or held out, or ``out`` holds something else.
    """
    from stallward.training.network.arrays import SEEDS_FOLDER, save_policy  # noqa: PLC0415

    if out.exists() and not (out / SEEDS_FOLDER).is_dir():
        raise UsageError(f"{out} exists already.", next_step="Name a new directory with --out.")
    check_writable(out)
    loaded = load_twins(twins)
    _refuse_held_out(loaded)
    from stallward.training.ppo.train import Args, train  # noqa: PLC0415 - torch takes seconds
    from stallward.training.synthetic_scenarios import Composing  # noqa: PLC0415

    args = Args(seed=seed, seeds=seeds, composing=Composing(per_twin=composed))
    rules = _rules(thresholds, args.settings.ticks_per_action)  # refused before hours of training
    if decisions is not None:
        args = replace(args, total_steps=decisions)
    if seconds is not None:
        args = replace(args, max_seconds=_LEARNING_SHARE * seconds)
    (out / SEEDS_FOLDER).mkdir(parents=True, exist_ok=True)
    result = train(
        loaded,
        args,
        report,
        judged_on=_judges(judged_on),
        rules=rules,
        folder=out,
    )
    save_policy(out, result.policy)


def _refuse_held_out(twins: Sequence[FittedTwin]) -> None:
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
    out: Path | None = None,
    decisions: int,
    seconds: float | None = None,
    seeds: int = 5,
    judged_on: Sequence[str] = ("default",),
    composed: int = 3,
    seed: int = 1,
    report: Report = silent,
) -> Path:
    """Search the thresholds of a rule on fitted twins; returns the file written.

    Args:
        rule: Its name.
        twins: By file or name.
        out: The file; ``build/RULE.toml`` by default.
        decisions: On the twins, at most, for each seed.
        seconds: At most, for all seeds; the last evaluation comes on top.
        seeds: Searches, of which one is kept.
        judged_on: Twins by which it is chosen, as :func:`train_policy` takes them.
        composed: Scenarios of each twin's application beside other twins' programs.
        seed: Everything random follows from it.
        report: Told how far it is.

    Raises:
        StallwardError: If there is no such rule, a twin is missing or held out, or ``out`` is in
            use.
    """
    from stallward.training.synthetic_scenarios import Composing  # noqa: PLC0415
    from stallward.training.tuning.search import TuneSettings, find_tunable, tune  # noqa: PLC0415

    find_tunable(rule)
    file = out or Path("build") / f"{rule}.toml"
    check_file(file, kind="a file of thresholds", mark=b"[thresholds]")
    settings = TuneSettings(
        seed=seed,
        seeds=seeds,
        total_steps=decisions,
        max_seconds=float("inf") if seconds is None else seconds,
        composing=Composing(per_twin=composed),
    )
    loaded = load_twins(twins)
    _refuse_held_out(loaded)
    found = tune(rule, loaded, settings, report, judged_on=_judges(judged_on))
    file.parent.mkdir(parents=True, exist_ok=True)
    building = file.with_name(f".{file.name}.{os.getpid()}.partial")
    building.write_text(
        thresholds_text(found.thresholds, rule, found.provenance), encoding="utf-8"
    )
    building.replace(file)
    return file


def export_policy(run: Path, *, out: Path) -> None:
    """Export the policy of a training run, with its card beside it.

    Raises:
        StallwardError: If there is no policy in ``run``, it cannot be exported, or something
            else is in the way of the file or its card.
    """
    if out.suffix != ".onnx":
        raise UsageError(f"{out} does not end in .onnx.", next_step="Name a file that does.")
    check_file(out, kind="a policy", mark=b"stallward.schema")
    if not out.exists():
        check_file(
            out.with_suffix(".md"), kind="the card of a policy", mark=b"library_name: stallward"
        )
    from stallward.training.export.onnx_file import export_policy as export  # noqa: PLC0415
    from stallward.training.network.arrays import load_policy_arrays  # noqa: PLC0415

    export(load_policy_arrays(run), out)
