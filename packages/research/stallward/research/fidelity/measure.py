"""``stallward fidelity``: the errors of twins against live runs that no fit has seen.

*Arms left out*: for every scenario and every recorded arm, a twin is fitted to the other
recordings of the scenario. *Scenarios left out*: for every scenario that policies are not trained
on (the parts for validation and test, ``stallward.env.recording.split``), a twin takes the sizes
and full speeds from the scenario's references. Its parameters come from the fits of other
scenarios, the most similar ones first (:mod:`stallward.env.twin.estimate.transfer`).

The twin runs the arm: the controller itself in a closed loop, not a replay. The result is compared
with the recordings (``stallward.research.fidelity.distances``). Each figure comes with its noise
floor: the same figure between two live recordings of the arm, or between the halves of a single
one.

*Twins as they are*: the same for twins that were fitted before, each against all recordings of its
scenario. Recordings of a policy that was trained on them show whether they agree with the node in
the states that the policy visits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from stallward.actuator.runtime.temporary_folders import temporary_folder
from stallward.agent.errors import StallwardError
from stallward.env.catalogue.find import recording_folders
from stallward.env.recording.node_facts import node_info
from stallward.env.recording.recording import load_recording
from stallward.env.recording.run_info import RunInfo, load_run
from stallward.env.recording.split import load_split
from stallward.env.scenario.file import scenario_from
from stallward.env.twin.estimate.exogenous import estimate_exogenous
from stallward.env.twin.estimate.transfer import transfer
from stallward.env.twin.inputs.fitted import FittedTwin
from stallward.evaluation.arms import Arm, file_of, find_policy_of, make_arms
from stallward.evaluation.blocks.request import NO_ARM, Condition, RunRequest, file_sha256
from stallward.evaluation.blocks.twin import TwinRunner
from stallward.evaluation.errors import EvaluationError
from stallward.evaluation.measures.block_measures import Array, BlockMeasures, reduce, series_of
from stallward.research.fidelity.distances import ArmFidelity, summarise_fidelity
from stallward.research.fidelity.fits import DEFAULT_FITS, Fits
from stallward.research.fidelity.observed import Observed
from stallward.research.fidelity.result import FidelityResult, FidelityTable
from stallward.research.fidelity.signals import Signals, pooled, scales_of, signals_of
from stallward.research.fidelity.targets import load_fidelity_targets
from stallward.training.parallel.executor import Executor, Job
from stallward.training.parallel.local_processes import LOCAL
from stallward.training.progress import Report, part, silent

# ---------- The recordings that fidelity is measured against


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """A recording of an arm, live or on the twin, with its measures and signals."""

    path: Path
    run: RunInfo
    measures: BlockMeasures
    signals: Signals


RunsByScenario = Mapping[str, Sequence[MeasuredRun]]


def load_measured_runs(directory: Path, scenario: str = "") -> list[MeasuredRun]:
    """Load and measure all recordings below ``directory``.

    Raises:
        EvaluationError: If there is no recording.
        RecordingError: If one cannot be opened.
    """
    if not directory.is_dir():
        raise EvaluationError(
            f"There is no directory {directory}.", next_step="Name a directory of recordings."
        )
    runs = [(path, load_run(path)) for path in recording_folders([directory])]
    chosen = [(p, r) for p, r in runs if scenario in ("", r.scenario)]
    if not chosen:
        what = f" of {scenario!r}" if scenario else ""
        raise EvaluationError(
            f"There is no recording{what} below {directory}.",
            next_step="Record some with `stallward record`.",
        )
    return [measure_run(path, run) for path, run in chosen]


def measure_run(path: Path, run: RunInfo) -> MeasuredRun:
    """Load and measure the recording at ``path``."""
    recording = load_recording(path)
    measures = reduce(series_of(recording))
    return MeasuredRun(
        path=path, run=run, measures=measures, signals=signals_of(recording, measures)
    )


def training_and_held_out(by_scenario: RunsByScenario) -> tuple[RunsByScenario, RunsByScenario]:
    """The scenarios that twins may be fitted to, and the held-out ones that have references."""
    split = load_split()
    training = {n: runs for n, runs in by_scenario.items() if split.part_of_name(n) == "train"}
    held_out = {
        name: runs
        for name, runs in by_scenario.items()
        if name not in training and any(r.run.condition == "ample" for r in runs)
    }
    return training, held_out


_TWIN_BLOCKS: Final = 12
"""Twin blocks per arm; each draws its own parameters and arrivals."""
_REPLAYED: Final = "none"
"""Naive replay plays back the recordings of this arm."""
_OWN_BLOCKS: Final = 2
"""Twin blocks of the background by itself; it varies little."""


def measure_fidelity(
    recordings: Path,
    *,
    fits: Fits = DEFAULT_FITS,
    scenario: str = "",
    arm: str = "",
    twins: Sequence[FittedTwin] = (),
    executor: Executor = LOCAL,
    report: Report = silent,
) -> FidelityResult:
    """Measure the fidelity of twins fitted to ``recordings``, or of twins as they are.

    Args:
        recordings: Directory of recordings.
        fits: How twins are fitted, and where the fits are kept until the measurement is done. Its
            seed also seeds the twins' runs.
        scenario: The only scenario to measure; empty for all.
        arm: The only arm to leave out and predict; empty for each in turn.
        twins: Fitted twins to measure as they are, each for its scenario; if empty, twins are
            fitted.
        executor: Runs the fits and the twins.
        report: Called with the progress.

    Raises:
        EvaluationError: If no scenario has two arms, or no recording fits one of ``twins``.
        RecordingError: If a recording cannot be opened.
    """
    by_scenario: dict[str, list[MeasuredRun]] = {}
    for measured in load_measured_runs(recordings, scenario):
        by_scenario.setdefault(measured.run.scenario, []).append(measured)
    if twins:
        return _measure_as_they_are(
            by_scenario, twins, arm, fits.seed, executor=executor, report=report
        )
    training, held_out = training_and_held_out(by_scenario)
    arms = {name: _arms(runs) for name, runs in training.items()}
    jobs = [
        (name, one)
        for name, all_arms in arms.items()
        for one in all_arms
        if len(all_arms) >= 2 and arm in ("", one)
    ]
    if not jobs:
        raise EvaluationError(
            f"{recordings} holds no scenario with two arms or more"
            + (f", one of them {arm!r}," if arm else "")
            + " that a twin may be fitted to.",
            next_step="Record some with `stallward record`, or name another directory.",
        )
    fitted = fits.fit(
        [(f"{name} without {one}", _without(training[name], one)) for name, one in jobs],
        executor=executor,
        report=part(report, 0.0, 0.8),
    )
    rows = executor.run(
        [
            _comparison(training[name], one, twin, fits.seed)
            for (name, one), twin in zip(jobs, fitted, strict=True)
        ],
        part(report, 0.8, 0.9),
    )
    others = _scenarios_left_out(
        training, held_out, arm, fits, executor=executor, report=part(report, 0.9, 1.0)
    )
    report("done", 1.0)
    return FidelityResult(
        twins="fitted without the arm",
        table=_table(rows, _not_run(training, arm)),
        left_out_scenarios=_table(others, _not_run(held_out, arm)) if others else None,
    )


def _measure_as_they_are(
    by_scenario: RunsByScenario,
    twins: Sequence[FittedTwin],
    arm: str,
    seed: int,
    *,
    executor: Executor,
    report: Report,
) -> FidelityResult:
    """Compare twins as they are with all recorded arms of their scenarios."""
    jobs = [
        (runs, one, twin)
        for twin in twins
        for runs in [by_scenario.get(twin.scenario.name, ())]
        for one in _arms(runs)
        if arm in ("", one)
    ]
    if not jobs:
        names = ", ".join(twin.scenario.name for twin in twins)
        raise EvaluationError(
            f"No recording{f' of {arm!r}' if arm else ''} can be compared with the twins of "
            f"{names}: none is of their scenarios, or of an arm that can still be run.",
            next_step="Record some with `stallward record`, or name other twins.",
        )
    rows = executor.run([_comparison(*job, seed) for job in jobs], report)
    report("done", 1.0)
    used = {twin.scenario.name: by_scenario.get(twin.scenario.name, ()) for twin in twins}
    return FidelityResult(
        twins="as they are", table=_table(rows, _not_run(used, arm)), left_out_scenarios=None
    )


def _table(arms: Sequence[ArmFidelity], not_run: Sequence[str]) -> FidelityTable:
    summary = summarise_fidelity(arms)
    return FidelityTable(
        arms=tuple(arm.row() for arm in arms),
        not_run=tuple(not_run),
        summary=summary,
        targets=load_fidelity_targets().judge(summary),
    )


def _not_run(by_scenario: RunsByScenario, arm: str) -> list[str]:
    """The arms with recordings that cannot be run any more, each with its scenario."""
    return [
        f"{name} {one}"
        for name, runs in by_scenario.items()
        for one in _labels(_together(runs, runnable=False))
        if arm in ("", one)
    ]


def _comparison(
    runs: Sequence[MeasuredRun], arm: str, twin: FittedTwin, seed: int
) -> Job[ArmFidelity]:
    """The job of running an arm on a twin and comparing it with the recordings."""
    name = f"{twin.scenario.name}, {arm}"
    return Job(name, partial(_reported, name, partial(_compared, runs, arm, twin, seed)))


def _reported(name: str, compare: Callable[[], ArmFidelity], report: Report) -> ArmFidelity:
    report(name, 0.0)
    return compare()


def _arms(runs: Sequence[MeasuredRun]) -> list[str]:
    """The arms of a scenario that ran together with the background and can run on the twin."""
    return _labels(_together(runs, runnable=True))


def _labels(runs: Sequence[MeasuredRun]) -> list[str]:
    return list(dict.fromkeys(r.run.arm for r in runs))


def _together(runs: Sequence[MeasuredRun], *, runnable: bool) -> list[MeasuredRun]:
    """The recordings together with the background of what can still be run, or cannot.

    Recordings of one label may be of several policies, one after the other.
    """
    of_file = {(r.run.arm, r.run.policy_sha256): r for r in runs if r.run.condition == "together"}
    wanted = {key for key, one in of_file.items() if _can_run(one.run) == runnable}
    return [
        r
        for r in runs
        if r.run.condition == "together" and (r.run.arm, r.run.policy_sha256) in wanted
    ]


def _can_run(run: RunInfo) -> bool:
    """Whether the arm of a recording can still be run as it was.

    A policy that was replaced cannot, nor a rule with other thresholds.
    """
    try:
        arm = make_arms([run.arm])[0]
        file = file_of(arm, find_policy_of(arm, "default", run.scenario))
    except StallwardError:
        return False
    same = file is None or run.policy_sha256 in ("", file_sha256(file))
    return same and arm.peer is None


def _without(runs: Sequence[MeasuredRun], arm: str) -> list[Path]:
    """The recordings that a fit without an arm may see."""
    return [r.path for r in runs if r.run.arm != arm or r.run.condition != "together"]


def _compared(runs: Sequence[MeasuredRun], arm: str, twin: FittedTwin, seed: int) -> ArmFidelity:
    """Run an arm on a twin and compare it with the recordings of its scenario."""
    together = [r for r in runs if r.run.condition == "together"]
    live = [r for r in _together(runs, runnable=True) if r.run.arm == arm]
    own = [r for r in runs if r.run.condition == "background"]
    run = live[0].run
    simulated = run_on_twin(twin, run, make_arms([arm])[0], blocks=_TWIN_BLOCKS, seed=seed)
    own_simulated = (
        run_on_twin(
            twin, own[0].run, NO_ARM, condition="background", blocks=_OWN_BLOCKS, seed=seed
        )
        if own
        else []
    )
    replayed = [r.signals for r in together if r.run.arm == _REPLAYED]
    return ArmFidelity(
        scenario=run.scenario,
        arm=arm,
        live=_observed(live, own),
        twin=_observed(simulated, own_simulated),
        replay=pooled(replayed) if replayed and arm != _REPLAYED else None,
        scales=scales_of([r.signals for r in together]),
    )


def _observed(blocks: Sequence[MeasuredRun], own: Sequence[MeasuredRun]) -> Observed:
    return Observed(
        blocks=tuple(r.measures for r in blocks),
        own_units_per_s=_units_per_s([r.measures for r in own]),
        signals=tuple(r.signals for r in blocks),
    )


def _scenarios_left_out(
    training: RunsByScenario,
    held_out: RunsByScenario,
    arm: str,
    fits: Fits,
    *,
    executor: Executor,
    report: Report,
) -> list[ArmFidelity]:
    """Run the arms of held-out scenarios on twins with parameters fitted to other scenarios."""
    jobs = [
        (name, one) for name, runs in held_out.items() for one in _arms(runs) if arm in ("", one)
    ]
    if not jobs:
        return []
    fitted = fits.fit(
        [(name, [r.path for r in runs]) for name, runs in training.items()],
        executor=executor,
        report=part(report, 0.0, 0.6),
    )
    transferred = {name: _transferred(held_out[name], fitted) for name, _ in jobs}
    return executor.run(
        [_comparison(held_out[name], one, transferred[name], fits.seed) for name, one in jobs],
        part(report, 0.6, 1.0),
    )


def _transferred(runs: Sequence[MeasuredRun], fitted: Sequence[FittedTwin]) -> FittedTwin:
    """The twin of a scenario that no fit has seen."""
    references = [load_recording(r.path) for r in runs if r.run.condition != "together"]
    under_pressure = next(r.run for r in runs if r.run.condition == "together")
    described = estimate_exogenous(under_pressure.scenario, references)
    return transfer(replace(described, zone_bytes=under_pressure.sandbox_bytes), fitted)


def _units_per_s(blocks: Sequence[BlockMeasures]) -> Array | None:
    """The rate of each group; ``None`` if there are no blocks."""
    if not blocks:
        return None
    return np.asarray(np.concatenate([block.units for block in blocks]).mean(axis=0))


def run_on_twin(
    twin: FittedTwin,
    run: RunInfo,
    arm: Arm,
    *,
    blocks: int,
    seed: int,
    condition: Condition = "together",
) -> list[MeasuredRun]:
    """Run ``blocks`` blocks of an arm on a twin, with the target and the length of a live run."""
    scenario = None  # of a node that served
    if run.scenario_parameters:
        scenario = scenario_from(run.scenario_parameters, Path(f"{run.scenario}.toml"))
    runner = TwinRunner(twin=twin, scenario=scenario, node=node_info(Path.cwd()))
    policy = find_policy_of(arm, "default", run.scenario)
    measured = []
    with temporary_folder("twin") as folder:
        for block in range(blocks):
            out = folder / f"{block}"
            request = RunRequest(
                condition=condition,
                arm=arm,
                policy=policy,
                slo_ms=run.slo_ms,
                duration_s=run.end_s - run.measured_from_s,
                burn_in_s=run.burn_in_s,
                seed=seed + block,
            )
            runner.run_block(request, out)
            measured.append(measure_run(out, load_run(out)))
    return measured
