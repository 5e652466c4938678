"""``stallward experiment latd``: makes the runs that are missing, and the result of all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, Protocol

from stallward.evaluation.results.serialise import save
from stallward.papers.errors import ReplicationError
from stallward.papers.experiments.latd.analysis import scenario_figures, sweep_points
from stallward.papers.experiments.latd.result import LatdExperimentResult, LatdRun
from stallward.papers.experiments.latd.session import open_detector_session
from stallward.papers.experiments.latd.steps import (
    ISOLATED,
    SCENARIOS,
    SWAPPINESS_SWEEP,
    SWEEP,
    Part,
    Setting,
    settings_of,
)
from stallward.papers.experiments.latd.workload import (
    BURN_IN_S,
    MEASURED_S,
    USUAL,
    ZONE_MIB,
    Machine,
)
from stallward.papers.experiments.runs import (
    RESULT_FILE,
    ExperimentPlan,
    ExperimentRequest,
    Repeat,
    RunStore,
    make_missing,
    plan_repeats,
)
from stallward.training.progress import Report, silent

_EXPERIMENT: Final = "latd"


class DetectorRunner(Protocol):
    """Runs the detector beside a hog, under a controller."""

    def run(self, setting: Setting, seed: int) -> LatdRun:
        """Make one run and measure it."""


OpenSession = Callable[[], AbstractContextManager[DetectorRunner]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LatdExperimentRequest(ExperimentRequest):
    """The request of the user."""

    part: Part = "all"
    """Which of the experiments."""
    machine: Machine = USUAL
    """What it runs on."""
    measured_s: float = MEASURED_S
    """How long each run is measured."""


def run_latd_experiment(
    request: LatdExperimentRequest,
    report: Report = silent,
    opener: OpenSession | None = None,
) -> LatdExperimentResult:
    """Make the missing runs as far as there is time, and the result of all that are finished.

    Args:
        request: The request.
        report: Told about progress.
        opener: Opens what runs the programs; a sandbox of its own by default.

    Raises:
        StallwardError: If it cannot be run or resumed here. Finished runs are kept.
    """
    store = RunStore(request.out, _plan(request))
    steps = plan_repeats(settings_of(request.part), request.repeats, request.seed)

    def opened() -> AbstractContextManager[DetectorRunner]:
        return open_detector_session(request.machine, request.measured_s)

    make_missing(
        store,
        LatdRun,
        steps,
        opener or opened,
        lambda session, step: session.run(step.setting, request.seed + step.repeat),
        minutes=request.minutes,
        report=report,
        describe=lambda step: step.words,
    )
    result = _result(request, store)
    save(request.out / RESULT_FILE, result)
    return result


def _plan(request: LatdExperimentRequest) -> ExperimentPlan:
    scenarios = [setting.scenario(request.machine) for setting in settings_of("all")]
    settings = (scenarios, BURN_IN_S, request.measured_s, ZONE_MIB)
    return ExperimentPlan.of(_EXPERIMENT, settings, request.seed)


def _result(request: LatdExperimentRequest, store: RunStore) -> LatdExperimentResult:
    """The result of all finished runs of the request.

    Raises:
        ReplicationError: If there is none.
    """
    runs = {
        setting: [
            run
            for repeat in range(1, request.repeats + 1)
            if (run := store.get(LatdRun, Repeat(setting=setting, repeat=repeat).key)) is not None
        ]
        for setting in settings_of(request.part)
    }
    finished = [run for of_setting in runs.values() for run in of_setting]
    if not finished:
        raise ReplicationError("No run is finished.", next_step="Give it more --minutes.")
    isolated = runs[SCENARIOS[ISOLATED]]

    def found(settings: Mapping[float, Setting]) -> dict[float, list[LatdRun]]:
        return {value: runs.get(setting, []) for value, setting in settings.items()}

    wanted = SCENARIOS if request.part in {"all", "scenarios"} else {}
    points = {
        hog: sweep_points(found(by_used), isolated, request.seed)
        for hog, by_used in (SWEEP if request.part in {"all", "utilisation"} else {}).items()
    }
    swept = SWAPPINESS_SWEEP if request.part in {"all", "swappiness"} else {}
    return LatdExperimentResult(
        node=finished[-1].node,
        seed=request.seed,
        done_runs=len(finished),
        planned_runs=request.repeats * len(runs),
        scenarios={
            name: scenario_figures(runs[setting], isolated, request.seed)
            for name, setting in wanted.items()
            if runs[setting]
        },
        utilisation={hog: found_points for hog, found_points in points.items() if found_points},
        swappiness=sweep_points(found(swept), isolated, request.seed),
        stolen_share_worst=max(run.stolen_share for run in finished),
        not_counted=next((run.not_counted for run in finished if run.not_counted), ""),
    )
