"""``stallward experiment dasec``: makes the runs that are missing, and the result of all."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from stallward.evaluation.errors import ReplicationError
from stallward.evaluation.replication.dasec.analysis import Runs, cell_figures, summarise
from stallward.evaluation.replication.dasec.applications import (
    APPLICATIONS,
    BURN_IN_S,
    MEASURED_S,
    Application,
    Division,
    dasec_scenario,
)
from stallward.evaluation.replication.dasec.result import (
    CellFigures,
    DasecExperimentResult,
    DasecRun,
    RatioFigures,
)
from stallward.evaluation.replication.dasec.session import open_dasec_session
from stallward.evaluation.replication.dasec.steps import (
    ARMS,
    RATIOS,
    Setting,
    settings_of,
)
from stallward.evaluation.replication.missing_runs import make_missing
from stallward.evaluation.replication.repeats import Repeat, plan_repeats
from stallward.evaluation.replication.run_store import ExperimentPlan, RunStore
from stallward.evaluation.results.serialise import save
from stallward.training.progress import Report, silent

RESULT_FILE: Final = "result.json"
_EXPERIMENT: Final = "dasec"


class ApplicationRunner(Protocol):
    """Runs an application beside batch jobs, under a controller."""

    def prepare(self, application: Application) -> None:
        """Make what the application needs."""

    def run(self, setting: Setting, seed: int) -> DasecRun:
        """Make one run and measure it."""


OpenSession = Callable[[], AbstractContextManager[ApplicationRunner]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DasecExperimentRequest:
    """The request of the user."""

    out: Path
    """The folder of the experiment, new or to be resumed."""
    applications: tuple[Application, ...] = APPLICATIONS
    """Which applications."""
    division: Division = "thread"
    """How the CPU is divided."""
    repeats: int = 3
    """How often every setting runs."""
    minutes: float = 600.0
    """After how long no further run is begun."""
    seed: int = 1
    """Seeds the order of the runs, and the arrivals."""
    cpus: int = os.cpu_count() or 1
    """How many threads a batch job has: one for each processor."""


def run_dasec_experiment(
    request: DasecExperimentRequest,
    report: Report = silent,
    opener: OpenSession | None = None,
) -> DasecExperimentResult:
    """Make the missing runs as far as there is time, and the result of all that are finished.

    Args:
        request: The request.
        report: Told about progress.
        opener: Opens what runs the programs; a sandbox of its own by default.

    Raises:
        StallwardError: If it cannot be run or resumed here. Finished runs are kept.
    """
    store = RunStore(request.out, _plan(request))
    steps = plan_repeats(settings_of(request.applications), request.repeats, request.seed)
    missing = [step for step in steps if store.get(DasecRun, step.key) is None]

    def opened() -> AbstractContextManager[ApplicationRunner]:
        return open_dasec_session(division=request.division, cpus=request.cpus)

    if missing and request.minutes > 0.0:
        report("preparing programs", 0.0)
        with (opener or opened)() as session:
            for application in sorted({step.setting.application for step in missing}):
                session.prepare(application)
            make_missing(
                missing,
                lambda step: store.put(
                    step.key, session.run(step.setting, request.seed + step.repeat)
                ),
                minutes=request.minutes,
                report=report,
                describe=lambda step: step.words,
            )
    result = _result(request, store)
    save(request.out / RESULT_FILE, result)
    return result


def _plan(request: DasecExperimentRequest) -> ExperimentPlan:
    scenarios = [
        dasec_scenario(application, max(RATIOS), request.cpus) for application in APPLICATIONS
    ]
    settings = (scenarios, BURN_IN_S, MEASURED_S, request.division)
    return ExperimentPlan.of(_EXPERIMENT, settings, request.seed)


def _result(request: DasecExperimentRequest, store: RunStore) -> DasecExperimentResult:
    """The result of all finished runs of the request.

    Raises:
        ReplicationError: If there is none.
    """
    runs = {
        setting: {
            repeat: run
            for repeat in range(1, request.repeats + 1)
            if (run := store.get(DasecRun, Repeat(setting=setting, repeat=repeat).key)) is not None
        }
        for setting in settings_of(request.applications)
    }
    finished = [run for of_setting in runs.values() for run in of_setting.values()]
    if not finished:
        raise ReplicationError("No run is finished.", next_step="Give it more --minutes.")

    def cell(setting: Setting) -> CellFigures:
        alone: Runs = runs[Setting(application=setting.application)]
        unmanaged = runs[Setting(application=setting.application, ratio=setting.ratio)]
        return cell_figures(runs[setting], alone, unmanaged, request.seed)

    def at(application: Application, ratio: int) -> RatioFigures:
        settings = {
            arm: Setting(application=application, ratio=ratio, controller=arm) for arm in ARMS
        }
        found = {arm: cell(setting) for arm, setting in settings.items() if runs[setting]}
        return RatioFigures(ratio=ratio, arms=found)

    beside: dict[str, tuple[RatioFigures, ...]] = {
        application: tuple(at(application, ratio) for ratio in RATIOS)
        for application in request.applications
    }
    alone: dict[str, CellFigures] = {
        application: cell(setting)
        for application in request.applications
        if runs[setting := Setting(application=application)]
    }
    return DasecExperimentResult(
        node=finished[-1].node,
        seed=request.seed,
        division=request.division,
        done_runs=len(finished),
        planned_runs=request.repeats * len(runs),
        alone=alone,
        beside=beside,
        summary=summarise(beside, request.seed),
        stolen_share_worst=max(run.stolen_share for run in finished),
    )
