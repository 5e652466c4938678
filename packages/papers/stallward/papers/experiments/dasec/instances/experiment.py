"""``stallward experiment dasec --instances``: makes the missing runs, and the result of all."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, Protocol

from stallward.evaluation.arms import Arm
from stallward.evaluation.results.serialise import save
from stallward.papers.errors import ReplicationError
from stallward.papers.experiments.dasec.applications import (
    BURN_IN_S,
    INSTANCE_APPLICATIONS,
    Application,
    Division,
    instances_scenario,
)
from stallward.papers.experiments.dasec.instances.figures import (
    figures_of,
    over_cells,
    rates_per_s,
)
from stallward.papers.experiments.dasec.instances.result import (
    InstancesResult,
    InstancesRun,
    RequestCost,
)
from stallward.papers.experiments.dasec.instances.session import open_instances_session
from stallward.papers.experiments.dasec.instances.steps import (
    ARMS,
    COUNTS,
    LOADS,
    MIXES,
    Cell,
    CellRun,
    Mix,
    cells_of,
    plan_runs,
)
from stallward.papers.experiments.dasec.instances.tables import RUNS_FILE, runs_csv
from stallward.papers.experiments.runs import (
    RESULT_FILE,
    ExperimentPlan,
    ExperimentRequest,
    RunStore,
    make_missing,
)
from stallward.training.progress import Report, silent

REPEATS: Final = 5
MEASURED_S: Final = 30.0
_EXPERIMENT: Final = "dasec, several instances"


class InstancesRunner(Protocol):
    """Runs instances side by side, under a controller."""

    def prepare(self, applications: Sequence[Application]) -> None:
        """Make what the applications need."""

    def measure_cost(self, application: Application, seed: int) -> RequestCost:
        """Measure the CPU time of a request to an application that runs alone."""

    def run(
        self,
        applications: Sequence[Application],
        rates_per_s: Sequence[float],
        arm: Arm,
        seed: int,
    ) -> InstancesRun:
        """Make one run and measure it."""


OpenSession = Callable[[], AbstractContextManager[InstancesRunner]]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstancesRequest(ExperimentRequest):
    """The request of the user."""

    repeats: int = REPEATS
    applications: tuple[Application, ...] = INSTANCE_APPLICATIONS
    """Which applications."""
    counts: tuple[int, ...] = COUNTS
    """How many instances run side by side."""
    mixes: tuple[Mix, ...] = MIXES
    """Of the same application, or of each in turn."""
    loads: tuple[float, ...] = LOADS
    """The shares of all processors that are offered."""
    measured_s: float = MEASURED_S
    """How long each run is measured."""
    division: Division = "thread"
    """How the CPU is divided."""
    cpus: int = os.cpu_count() or 1
    """How many processors there are."""


def run_instances_experiment(
    request: InstancesRequest, report: Report = silent, opener: OpenSession | None = None
) -> InstancesResult:
    """Make the missing runs as far as there is time, and the result of all that are finished.

    Args:
        request: The request.
        report: Told about progress.
        opener: Opens what runs the programs; a sandbox of its own by default.

    Raises:
        StallwardError: If it cannot be run or resumed here. Finished runs are kept.
    """
    cells = cells_of(request.applications, request.counts, request.mixes, request.loads)
    store = RunStore(request.out, _plan(request))

    def opened() -> AbstractContextManager[InstancesRunner]:
        return open_instances_session(
            division=request.division, cpus=request.cpus, measured_s=request.measured_s
        )

    def prepare(session: InstancesRunner, _missing: Sequence[CellRun]) -> None:
        session.prepare(request.applications)
        for application in request.applications:
            if store.get(RequestCost, _cost_key(application)) is None:
                report(f"measuring a request to {application} alone", 0.0)
                cost = session.measure_cost(application, request.seed)
                store.put(_cost_key(application), cost)

    def make(session: InstancesRunner, step: CellRun) -> InstancesRun:
        applications, costs = step.cell.applications, _costs(request, store)
        rates = rates_per_s(applications, step.cell.load, costs, request.cpus)
        return session.run(applications, rates, step.arm, request.seed + step.repeat)

    make_missing(
        store,
        InstancesRun,
        plan_runs(cells, request.repeats, request.seed),
        opener or opened,
        make,
        minutes=request.minutes,
        report=report,
        describe=lambda step: step.words,
        prepare=prepare,
    )
    return _result(request, cells, store)


def _cost_key(application: Application) -> str:
    return f"cost-{application}"


def _costs(request: InstancesRequest, store: RunStore) -> dict[str, RequestCost]:
    found = {one: store.get(RequestCost, _cost_key(one)) for one in request.applications}
    return {application: cost for application, cost in found.items() if cost is not None}


def _plan(request: InstancesRequest) -> ExperimentPlan:
    scenario = instances_scenario(INSTANCE_APPLICATIONS, [1.0] * len(INSTANCE_APPLICATIONS))
    settings = (scenario, BURN_IN_S, request.measured_s, request.division, request.cpus)
    return ExperimentPlan.of(_EXPERIMENT, settings, request.seed)


def _result(request: InstancesRequest, cells: Sequence[Cell], store: RunStore) -> InstancesResult:
    """The result of all finished runs of the request, written beside the list of the runs.

    Raises:
        ReplicationError: If there is none.
    """
    planned = plan_runs(cells, request.repeats, request.seed)
    finished = {
        step: run for step in planned if (run := store.get(InstancesRun, step.key)) is not None
    }
    if not finished:
        raise ReplicationError("No run is finished.", next_step="Give it more --minutes.")

    def runs_of(cell: Cell, arm: str) -> dict[int, InstancesRun]:
        return {
            step.repeat: run
            for step, run in finished.items()
            if step.cell == cell and step.controller == arm
        }

    figures = tuple(
        figures_of(cell, {arm: runs_of(cell, arm) for arm in ARMS}, request.seed) for cell in cells
    )
    result = InstancesResult(
        node=next(iter(finished.values())).node,
        seed=request.seed,
        division=request.division,
        measured_s=request.measured_s,
        done_runs=len(finished),
        planned_runs=len(planned),
        costs=_costs(request, store),
        cells=tuple(cell for cell in figures if cell.arms),
        summary=over_cells(figures, request.seed),
        stolen_share_worst=max(run.stolen_share for run in finished.values()),
    )
    save(request.out / RESULT_FILE, result)
    (request.out / RUNS_FILE).write_text(runs_csv(finished), encoding="utf-8")
    return result
