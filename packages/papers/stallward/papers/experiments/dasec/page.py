"""The page of the experiment of DASEC: the source's figures and ours. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from stallward.evaluation.report.experiment_page import (
    ExperimentPage,
    PageChart,
    PageSection,
)
from stallward.evaluation.results.interval import Interval
from stallward.papers.experiments.charts import BesideRow, SweepLine, beside_chart, sweep_chart
from stallward.papers.experiments.dasec.published import MEAN_LOWER, P99_LOWER, SOURCE
from stallward.papers.experiments.dasec.result import (
    ArmSummary,
    CellFigures,
    DasecExperimentResult,
)
from stallward.papers.experiments.dasec.steps import ARMS
from stallward.papers.experiments.dasec.tables import (
    latency_table,
    summary_table,
    thread_table,
)
from stallward.papers.experiments.dasec.texts import ARM_LABELS, DIVIDED, NOT_REPEATED
from stallward.papers.experiments.figures import one_minus

_DASEC: Final = "dasec"
_COLOURS: Final = {arm: f"var(--c{number})" for number, arm in enumerate(ARMS)}


def dasec_page(result: DasecExperimentResult) -> ExperimentPage:
    """The whole page."""
    sections = [_beside(result)] if result.summary else []
    sections += [
        *_rising(result),
        _threads(result),
        PageSection(title="What is not as in the source", notes=NOT_REPEATED),
        _method(result),
    ]
    return ExperimentPage(
        experiment="experiment dasec", source=SOURCE, headline=headline(result), sections=sections
    )


def headline(result: DasecExperimentResult) -> str:
    """What was found, in a sentence."""
    found = result.summary.get(_DASEC)
    if found is None or found.mean_lower.value is None or found.p99_lower.value is None:
        return "No run of dasec is finished beside one without control."
    return (
        f"Under dasec the mean latency is {_lower(found.mean_lower)} (source: "
        f"{100 * MEAN_LOWER:.0f} % lower) and the p99 {_lower(found.p99_lower)} (source: "
        f"{100 * P99_LOWER:.0f} % lower) than without control, over {found.cases} cases."
    )


def _lower(share: Interval) -> str:
    value = share.value or 0.0
    return f"{100 * abs(value):.0f} % {'lower' if value >= 0 else 'higher'}"


def _beside(result: DasecExperimentResult) -> PageSection:
    def chart(of: Callable[[ArmSummary], Interval], lower: float, label: str) -> str:
        rows = [
            BesideRow(
                label=ARM_LABELS[arm],
                colour=_COLOURS[arm],
                ours=one_minus(of(one)),
                theirs=1.0 - lower if arm == _DASEC else None,
            )
            for arm, one in result.summary.items()
        ]
        return beside_chart(rows, unit=" x", log=False, label=label)

    return PageSection(
        title="The source and here",
        what=(
            "Latencies as multiples of those without control: the geometric mean over "
            "applications and consolidation ratios, with 95 % intervals over these. Filled dots "
            "are ours, hollow ones the source's."
        ),
        charts=(
            PageChart(
                title="Mean latency / without control",
                svg=chart(lambda one: one.mean_lower, MEAN_LOWER, "Mean latency of each arm"),
            ),
            PageChart(
                title="p99 / without control",
                svg=chart(lambda one: one.p99_lower, P99_LOWER, "p99 of each arm"),
            ),
        ),
        table=summary_table(result),
    )


def _rising(result: DasecExperimentResult) -> list[PageSection]:
    """How latencies rise with the consolidation ratio, for each application."""
    kinds: tuple[tuple[str, Callable[[CellFigures], Interval]], ...] = (
        ("Mean latency", lambda one: one.mean_ms),
        ("p99", lambda one: one.p99_ms),
    )
    sections = [
        PageSection(
            title=f"{application.capitalize()} beside more and more batch threads",
            what="Geometric means over the repeats, with 95 % intervals.",
            key={ARM_LABELS[arm]: colour for arm, colour in _COLOURS.items()},
            charts=tuple(
                PageChart(title=kind, svg=_sweep(result, application, of, kind))
                for kind, of in kinds
            ),
        )
        for application in result.alone
    ]
    table = PageSection(
        title="Latency, service rate and batch work",
        what=(
            "Served is the rate of answered requests as a share of that alone, and batch the CPU "
            "time of the batch jobs as a multiple of that without control."
        ),
        table=latency_table(result),
    )
    return [*sections, table]


def _sweep(
    result: DasecExperimentResult,
    application: str,
    of: Callable[[CellFigures], Interval],
    kind: str,
) -> str:
    alone = of(result.alone[application])
    by_ratio = result.beside[application]
    lines = [
        SweepLine(
            label=ARM_LABELS[arm],
            colour=_COLOURS[arm],
            points={
                0.0: alone,
                **{float(at.ratio): of(at.arms[arm]) for at in by_ratio if arm in at.arms},
            },
        )
        for arm in ARMS
    ]
    return sweep_chart(
        lines,
        axis="batch threads per processor",
        share=False,
        label=f"{kind} of {application} against batch threads per processor",
    )


def _threads(result: DasecExperimentResult) -> PageSection:
    return PageSection(
        title="What delays the threads on the critical path",
        what=(
            "How many of the application's threads ran and waited for a CPU at a time; how many "
            "were on the critical path; and the share of periods of 0.1 s in which one of those "
            "was delayed, interrupted, or lacked share, as the source defines it. It is judged "
            "alike under every controller."
        ),
        table=thread_table(result),
    )


def _method(result: DasecExperimentResult) -> PageSection:
    node = result.node
    return PageSection(
        title="Node and method",
        notes=(
            f"Node: {node.kind}, kernel {node.kernel}, {node.cpu_count} CPUs, {node.cpu}. The "
            "daemon runs in every run, also without control.",
            *(text for division, text in DIVIDED.items() if division == result.division),
            "The load generator has a real-time priority, so that its own waiting is no latency "
            "of the application.",
            f"{result.done_runs} of {result.planned_runs} runs are finished; seed {result.seed}. "
            f"Steal time in the worst run: {100 * result.stolen_share_worst:.1f} %.",
            *(f"{label}: {arm}" for arm, label in ARM_LABELS.items() if label != arm),
        ),
    )
