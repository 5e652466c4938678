"""The page of several instances side by side: the source's figures and ours. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from stallward.evaluation.report.experiment_page import ExperimentPage, PageChart, PageSection
from stallward.evaluation.results.interval import Interval
from stallward.papers.experiments.charts import SweepLine, sweep_chart
from stallward.papers.experiments.dasec.applications import PAIRS
from stallward.papers.experiments.dasec.instances.result import (
    ArmFigures,
    CellFigures,
    InstancesResult,
)
from stallward.papers.experiments.dasec.instances.steps import ARMS
from stallward.papers.experiments.dasec.instances.tables import (
    cells_table,
    instances_of,
    instances_table,
    over_cells_table,
)
from stallward.papers.experiments.dasec.published import MEAN_LOWER, P99_LOWER, SOURCE
from stallward.papers.experiments.dasec.texts import ARM_LABELS

_COLOURS: Final = {arm: f"var(--c{number})" for number, arm in enumerate(ARMS)}
_DASEC: Final = "dasec"


def instances_page(result: InstancesResult) -> ExperimentPage:
    """The whole page."""
    return ExperimentPage(
        experiment="experiment dasec --instances",
        source=SOURCE,
        headline=headline(result),
        sections=[
            PageSection(
                title="The source and here",
                what="How much lower than without control: the geometric mean over all cells, "
                "with 95 % intervals over them.",
                table=over_cells_table(result),
            ),
            *_rising(result),
            PageSection(
                title="Every cell",
                what="Geometric means over instances and rounds. Ratios are to the run without "
                "control in the same round, with 95 % intervals over rounds. The load is what "
                "was offered; beside it are the shares of all CPUs that were used.",
                table=cells_table(result),
            ),
            PageSection(title="Every instance", table=instances_table(result)),
            PageSection(title="Node and method", notes=method_notes(result)),
        ],
    )


def headline(result: InstancesResult) -> str:
    """What was found, in a sentence."""
    found = result.summary.get(_DASEC)
    if found is None or found.mean_ratio.value is None or found.p99_ratio.value is None:
        return "No run of dasec is finished beside one without control."
    return (
        f"Under dasec the mean latency is {found.mean_ratio.value:.2f} times (source: "
        f"{1 - MEAN_LOWER:.2f}) and the p99 {found.p99_ratio.value:.2f} times (source: "
        f"{1 - P99_LOWER:.2f}) that without control, over {found.cells} cells."
    )


def method_notes(result: InstancesResult) -> tuple[str, ...]:
    """The node, the load and the runs, in sentences."""
    node = result.node
    costs = " and ".join(
        f"{cost.service_us:.0f} us to {application} (and {cost.generator_us:.0f} us to its load "
        "generator)"
        for application, cost in result.costs.items()
    )
    return (
        f"Node: kernel {node.kernel}, {node.cpu_count} CPUs, {node.cpu}; CPU divided by "
        f"{result.division}.",
        f"A request sets {PAIRS} keys and gets {PAIRS}. It costs {costs}, measured with each "
        "application alone at half of the CPUs. From that follow the rates: every instance has "
        "the same part of the load.",
        "Load generators have a real-time priority.",
        f"{result.done_runs} of {result.planned_runs} runs of {result.measured_s:g} s are "
        f"finished; seed {result.seed}. Steal time in the worst run: "
        f"{100 * result.stolen_share_worst:.1f} %.",
    )


def _rising(result: InstancesResult) -> list[PageSection]:
    """How latencies rise with the load, for each kind and number of instances."""
    kinds: tuple[tuple[str, Callable[[ArmFigures], Interval]], ...] = (
        ("Mean latency", lambda one: one.mean_ms),
        ("p99", lambda one: one.p99_ms),
    )
    groups: dict[str, list[CellFigures]] = {}
    for cell in result.cells:
        groups.setdefault(instances_of(cell), []).append(cell)
    return [
        PageSection(
            title=f"{name[0].upper()}{name[1:]} at more and more load",
            key={ARM_LABELS[arm]: colour for arm, colour in _COLOURS.items()},
            charts=tuple(PageChart(title=kind, svg=_sweep(cells, of, kind)) for kind, of in kinds),
        )
        for name, cells in groups.items()
    ]


def _sweep(cells: list[CellFigures], of: Callable[[ArmFigures], Interval], kind: str) -> str:
    lines = [
        SweepLine(
            label=ARM_LABELS[arm],
            colour=_COLOURS[arm],
            points={cell.load: of(cell.arms[arm]) for cell in cells if arm in cell.arms},
        )
        for arm in ARMS
    ]
    return sweep_chart(
        lines,
        axis="load",
        share=True,
        label=f"{kind} of {instances_of(cells[0])} against the load",
    )
