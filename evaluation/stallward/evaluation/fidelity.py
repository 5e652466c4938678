"""``stallward fidelity``: how far the twin is off, arm by arm, each arm left out of its fit.

For every scenario and arm that was recorded, a twin is fitted to the scenario's other
recordings; that twin runs the arm (the controller itself, closed loop, not a replay) and its
latencies and background work are laid beside the recorded ones
(``stallward.evaluation.fidelity_measures``). Beside the errors stands the noise floor: the same
figure between two live recordings of the arm, or between the halves of the only one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from stallward.actuator.passing_folder import passing_folder
from stallward.agent.errors import StallwardError
from stallward.env.recording_run import RunInfo, load_run
from stallward.env.scenario_file import scenario_from
from stallward.env.twin.fitted import FittedTwin
from stallward.evaluation.arms import Arm, make_arms
from stallward.evaluation.compare import find_policy_of
from stallward.evaluation.errors import EvaluationError
from stallward.evaluation.fidelity_measures import ArmFidelity, Observed, summarise_fidelity
from stallward.evaluation.measure import Array, BlockMeasures, measure_recording
from stallward.evaluation.node_facts import node_info
from stallward.evaluation.pipeline import fit_recordings, recordings_of
from stallward.evaluation.progress import Report, silent
from stallward.evaluation.runs import NO_ARM, Condition, RunRequest
from stallward.evaluation.simulate import TwinRunner
from stallward.training.workers import side_by_side

_TWIN_BLOCKS: Final = 4
"""Twin blocks per arm: so many draws of parameters and arrivals."""
_OWN_BLOCKS: Final = 2
"""Of the background by itself, which varies little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A live recording of an arm."""

    path: Path
    run: RunInfo
    measures: BlockMeasures


def measure_fidelity(
    recordings: Path,
    *,
    seconds: float = 30.0,
    scenario: str = "",
    seed: int = 1,
    workers: int | None = None,
    report: Report = silent,
) -> dict[str, Any]:
    """Measure the fidelity of twins fitted to ``recordings``.

    Args:
        recordings: Directory of them.
        seconds: Time for each fit.
        scenario: Only this one; empty for all.
        seed: Seeds the fits and the twins' runs.
        workers: Fits at once, as many as there are processors by default.
        report: Told how far it is.

    Raises:
        EvaluationError: If there are not two arms of any scenario.
        RecordingError: If a recording cannot be opened.
    """
    found = load_recorded(recordings, scenario)
    jobs = [
        (name, arm)
        for name in dict.fromkeys(r.run.scenario for r in found)
        for arm in _arms(found, name)
        if len(_arms(found, name)) >= 2
    ]
    if not jobs:
        raise EvaluationError(
            f"{recordings} holds no scenario with two arms or more.",
            next_step="Record some with `stallward record`, or name another directory.",
        )
    by_scenario: dict[str, list[Recorded]] = {}
    for recorded in found:
        by_scenario.setdefault(recorded.run.scenario, []).append(recorded)
    rows = side_by_side(
        [partial(_left_out, by_scenario[n], arm, seconds, seed) for n, arm in jobs],
        report,
        workers=workers,
    )
    report("done", 1.0)
    return {"schema": 1, "arms": [row.as_json() for row in rows], **summarise_fidelity(rows)}


def load_recorded(directory: Path, scenario: str = "") -> list[Recorded]:
    """All recordings below ``directory``, measured.

    Raises:
        EvaluationError: If there is none.
        RecordingError: If one cannot be opened.
    """
    if not directory.is_dir():
        raise EvaluationError(
            f"There is no directory {directory}.", next_step="Name a directory of recordings."
        )
    runs = [(path, load_run(path)) for path in recordings_of([directory])]
    chosen = [(p, r) for p, r in runs if scenario in ("", r.scenario)]
    if not chosen:
        what = f" of {scenario!r}" if scenario else ""
        raise EvaluationError(
            f"There is no recording{what} below {directory}.",
            next_step="Record some with `stallward record`.",
        )
    return [Recorded(path=p, run=r, measures=measure_recording(p)) for p, r in chosen]


def _arms(found: Sequence[Recorded], scenario: str) -> list[str]:
    """Arms of a scenario that ran together with the background and can be run on the twin."""
    names = dict.fromkeys(
        r.run.arm for r in found if r.run.scenario == scenario and r.run.condition == "together"
    )
    return [name for name in names if _can_run(name, scenario)]


def _can_run(label: str, scenario: str) -> bool:
    try:
        return (
            find_policy_of(make_arms([label])[0], "default", scenario) is not None
            or not make_arms([label])[0].runs_policy
        )
    except StallwardError:
        return False


def _left_out(
    mine: Sequence[Recorded], arm: str, seconds: float, seed: int, report: Report
) -> ArmFidelity:
    """Fit a scenario's twin without ``arm`` and run it there."""
    live = [r for r in mine if r.run.arm == arm and r.run.condition == "together"]
    own = [r for r in mine if r.run.condition == "background"]
    rest = [r.path for r in mine if r not in live]
    twin = fit_recordings(
        rest,
        seconds=seconds,
        seed=seed,
        report=lambda message, share: report(f"without {arm}, {message}", share),
    )
    chosen = make_arms([arm])[0]
    simulated = run_on_twin(twin, live[0].run, chosen, blocks=_TWIN_BLOCKS, seed=seed)
    own_simulated = (
        run_on_twin(
            twin, own[0].run, NO_ARM, condition="background", blocks=_OWN_BLOCKS, seed=seed
        )
        if own
        else []
    )
    return ArmFidelity(
        scenario=live[0].run.scenario,
        arm=arm,
        live=Observed(
            blocks=tuple(r.measures for r in live),
            own_units_per_s=_units_per_s([r.measures for r in own]),
        ),
        twin=Observed(blocks=tuple(simulated), own_units_per_s=_units_per_s(own_simulated)),
    )


def _units_per_s(blocks: Sequence[BlockMeasures]) -> Array | None:
    """Each group's rate; ``None`` without blocks."""
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
) -> list[BlockMeasures]:
    """Run an arm on a twin as it was run live: same target, same length, ``blocks`` times."""
    scenario = scenario_from(run.scenario_parameters, Path(f"{run.scenario}.toml"))
    runner = TwinRunner(twin=twin, scenario=scenario, node=node_info(Path.cwd()))
    policy = find_policy_of(arm, "default", run.scenario)
    measures = []
    with passing_folder("twin") as folder:
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
            measures.append(measure_recording(out))
    return measures
