"""From what one block and its watch show to a run, and from runs to figures with intervals. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np

from stallward.env.recording.recording import Requests
from stallward.env.recording.run_info import NodeInfo
from stallward.env.sandbox.block import BlockResult
from stallward.evaluation.results.interval import Interval
from stallward.papers.errors import ReplicationError
from stallward.papers.experiments.dasec.applications import Application
from stallward.papers.experiments.dasec.instances.result import (
    ArmFigures,
    CellFigures,
    CpuUse,
    InstanceFigures,
    InstanceRun,
    InstancesRun,
    OverCells,
    RequestCost,
)
from stallward.papers.experiments.dasec.instances.steps import ARMS, Cell
from stallward.papers.experiments.dasec.steps import UNMANAGED
from stallward.papers.experiments.figures import over_cases

# ---------- One run


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuReading:
    """CPU time used until one time, in seconds."""

    time_s: float
    """CLOCK_MONOTONIC."""
    services_s: float
    generators_s: float
    machine_s: float


def reduce_block(
    block: BlockResult,
    applications: Sequence[Application],
    readings: Sequence[CpuReading],
    cpus: int,
    node: NodeInfo,
) -> InstancesRun:
    """What is kept of a run.

    Args:
        block: The run.
        applications: The application of each instance.
        readings: The CPU time used meanwhile, by time.
        cpus: How many processors there are.
        node: The node.

    Raises:
        ReplicationError: If no request was due in the measured part, or the CPU time was not read.
    """
    from_s = block.start_s + block.burn_in_s
    requests = (block.requests, *(one.requests for one in block.others))
    return InstancesRun(
        instances=tuple(
            _instance(application, due.where(due.scheduled_s >= from_s), block.end_s)
            for application, due in zip(applications, requests, strict=True)
        ),
        cpu=cpu_use([one for one in readings if from_s <= one.time_s <= block.end_s], cpus),
        stolen_share=block.stolen_share,
        node=node,
    )


def _instance(application: Application, due: Requests, end_s: float) -> InstanceRun:
    if not due.scheduled_s.size:
        raise ReplicationError(
            f"No request to {application} was due in the run.", next_step="Give it more --seconds."
        )
    latency_ms = due.sojourn_ms
    return InstanceRun(
        application=application,
        requests=int(due.scheduled_s.size),
        answered_share=float((due.ok & (due.end_s <= end_s)).mean()),
        mean_ms=float(latency_ms.mean()),
        p50_ms=float(np.quantile(latency_ms, 0.5)),
        p99_ms=float(np.quantile(latency_ms, 0.99)),
    )


def cpu_use(readings: Sequence[CpuReading], cpus: int) -> CpuUse:
    """The shares of all processors that were used between the first reading and the last.

    Raises:
        ReplicationError: If there are fewer than two.
    """
    if len(readings) < 2:
        raise ReplicationError(
            "The CPU time was not read in the run.", next_step="Give it more --seconds."
        )
    before, now = readings[0], readings[-1]
    span_s = (now.time_s - before.time_s) * cpus
    return CpuUse(
        services=(now.services_s - before.services_s) / span_s,
        generators=(now.generators_s - before.generators_s) / span_s,
        machine=(now.machine_s - before.machine_s) / span_s,
    )


# ---------- How many requests make which load


def request_cost(run: InstancesRun, measured_s: float, cpus: int) -> RequestCost:
    """The CPU time of a request to the only instance of a run.

    Args:
        run: The run.
        measured_s: How long it was measured.
        cpus: How many processors there are.

    Raises:
        ReplicationError: If it answered nothing, or used no time.
    """
    (instance,) = run.instances
    answered = instance.requests * instance.answered_share
    if not answered or run.cpu.services <= 0.0:
        raise ReplicationError(
            f"{instance.application} alone answered nothing, or its CPU time is too short to read.",
            next_step="Run it on an idle machine.",
        )
    us_per_share = measured_s * cpus * 1e6 / answered
    return RequestCost(
        service_us=run.cpu.services * us_per_share,
        generator_us=run.cpu.generators * us_per_share,
    )


def rates_per_s(
    applications: Sequence[Application],
    load: float,
    costs: Mapping[str, RequestCost],
    cpus: int,
) -> tuple[float, ...]:
    """How many requests each instance gets, so that all have the same part of the load.

    Args:
        applications: The application of each instance.
        load: The share of all processors that all use together.
        costs: Name of an application -> the CPU time of a request.
        cpus: How many processors there are.
    """
    each_us_per_s = load * cpus * 1e6 / len(applications)
    spent_us = [costs[one].service_us + costs[one].generator_us for one in applications]
    return tuple(each_us_per_s / one_us for one_us in spent_us)


# ---------- All runs

Runs = Mapping[int, InstancesRun]
"""Number of a round -> its run. Runs of the same round have the same arrivals."""


def figures_of(cell: Cell, runs: Mapping[str, Runs], seed: int) -> CellFigures:
    """The figures of a cell.

    Args:
        cell: The cell.
        runs: Name of a controller -> its finished runs.
        seed: Seeds the resampling.
    """
    unmanaged = runs.get(UNMANAGED, {})
    return CellFigures(
        mix=cell.mix,
        instances=len(cell.applications),
        load=cell.load,
        arms={arm: _arm(runs[arm], unmanaged, seed) for arm in ARMS if runs.get(arm)},
    )


def _arm(runs: Runs, unmanaged: Runs, seed: int) -> ArmFigures:
    def over(of: Callable[[InstanceRun], float], number: int | None = None) -> Interval:
        chosen = slice(None) if number is None else slice(number, number + 1)
        return over_cases([_mean(run.instances[chosen], of) for run in runs.values()], seed)

    def ratio(of: Callable[[InstanceRun], float]) -> Interval:
        if runs is unmanaged:
            return Interval(value=1.0, low=None, high=None)
        both = sorted(runs.keys() & unmanaged.keys())
        pairs = [(runs[i].instances, unmanaged[i].instances) for i in both]
        return over_cases([_mean(ours, of) / _mean(base, of) for ours, base in pairs], seed)

    every = list(runs.values())
    due = sum(one.requests for run in every for one in run.instances)
    answered = sum(one.requests * one.answered_share for run in every for one in run.instances)
    return ArmFigures(
        runs=len(every),
        instances=tuple(
            InstanceFigures(
                application=one.application,
                mean_ms=over(_mean_ms, number),
                p99_ms=over(_p99_ms, number),
            )
            for number, one in enumerate(every[0].instances)
        ),
        mean_ms=over(_mean_ms),
        p99_ms=over(_p99_ms),
        mean_ratio=ratio(_mean_ms),
        p99_ratio=ratio(_p99_ms),
        answered_share=answered / due,
        cpu=CpuUse(
            **{
                field.name: float(np.mean([getattr(run.cpu, field.name) for run in every]))
                for field in fields(CpuUse)
            }
        ),
    )


def _mean(instances: Sequence[InstanceRun], of: Callable[[InstanceRun], float]) -> float:
    """The geometric mean over instances, because latencies vary by factors."""
    return float(np.exp(np.mean([np.log(of(one)) for one in instances])))


def _mean_ms(instance: InstanceRun) -> float:
    return instance.mean_ms


def _p99_ms(instance: InstanceRun) -> float:
    return instance.p99_ms


def over_cells(cells: Sequence[CellFigures], seed: int) -> dict[str, OverCells]:
    """Each controller over all cells that it ran in beside a run without control.

    Args:
        cells: The cells.
        seed: Seeds the resampling.
    """
    found: dict[str, list[ArmFigures]] = {}
    for cell in cells:
        for arm, figures in cell.arms.items():
            if arm != UNMANAGED and figures.mean_ratio.value is not None:
                found.setdefault(arm, []).append(figures)
    return {
        arm: OverCells(
            cells=len(ran),
            mean_ratio=over_cases([one.mean_ratio.value for one in ran], seed),
            p99_ratio=over_cases([one.p99_ratio.value for one in ran], seed),
        )
        for arm, ran in found.items()
    }
