"""The page of the experiments on swap assignment: the document's figures and ours. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from stallward.evaluation.replication.cells import percent, seconds
from stallward.evaluation.replication.swap.analysis import UNMANAGED
from stallward.evaluation.replication.swap.charts import (
    APPLICATION_COLOURS,
    StackedBar,
    arm_colours,
    gain_chart,
    latency_panels,
    response_chart,
)
from stallward.evaluation.replication.swap.published import (
    MOST_BY_SWAP,
    MOST_TOGETHER,
    SOURCE,
    WITH,
    WITHOUT,
    PublishedRun,
    means,
)
from stallward.evaluation.replication.swap.result import (
    ConfigurationFigures,
    SwapExperimentResult,
)
from stallward.evaluation.replication.swap.steps import ARMS, BOTH, DIRECT
from stallward.evaluation.report.experiment_page import (
    ExperimentPage,
    PageCell,
    PageChart,
    PageSection,
    PageTable,
)
from stallward.evaluation.results.interval import UNKNOWN

_MIB = 1 << 20
NOT_REPEATED = (
    "The Jetson TX2 with its two kinds of cores, its GPU and its SSD: here two equal processors "
    "and a virtual disk, and a 32nd of the memory.",
    "What the document's applications compute: it does not say. Ours work on their data in memory "
    "again and again.",
    "Its 24 GB of 18 GB: the setting of 320 MB of 240 MB is repeated as it is, in MiB.",
    "The pictures of its larger experiment: the text that is left of them has no figures, so only "
    "its largest gains can be laid beside ours.",
    "Its last two tables, from 11.52 to 10.79 s on average: they say neither what ran nor what "
    "changed.",
)
"""What of the document could not be repeated, and why."""


def swap_page(result: SwapExperimentResult) -> ExperimentPage:
    """The whole page."""
    sections: list[PageSection] = []
    if result.case_study is not None:
        sections += [_case_study(result.case_study), _degrees(result.case_study)]
    if result.larger:
        sections += _larger(result)
    sections += [
        PageSection(title="What could not be repeated", notes=NOT_REPEATED),
        _method(result),
    ]
    return ExperimentPage(
        experiment="experiment swap-assign",
        source=SOURCE,
        headline=headline(result),
        sections=sections,
    )


def headline(result: SwapExperimentResult) -> str:
    """What was found, in a sentence."""
    parts = []
    if result.case_study is not None:
        arms = result.case_study.arms
        parts.append(
            f"In the case study direct swap access lowers the total response time by "
            f"{percent(arms[DIRECT].lower).text}, with scheduling by contention by "
            f"{percent(arms[BOTH].lower).text}; the document has {100 * MOST_BY_SWAP:.1f} %."
        )
    both = result.larger_summary.get(BOTH)
    if both is not None and both.most_lower is not None:
        parts.append(
            f"With four applications both lower it by at most {100 * both.most_lower:.0f} %; the "
            f"document has {100 * MOST_TOGETHER:.1f} %."
        )
    return " ".join(parts) or "No repeat is complete yet."


def case_study_table(found: ConfigurationFigures) -> PageTable:
    """The case study: the document's means, and ours with intervals."""
    names = [one.name for one in found.applications]
    theirs = [
        _published_row("document: without", WITHOUT),
        _published_row("document: with", WITH),
    ]
    ours = [
        (
            PageCell(arm),
            *(seconds(figures.response_s[name]) for name in names),
            seconds(figures.total_s),
            percent(figures.lower) if arm != UNMANAGED else PageCell(""),
        )
        for arm, figures in found.arms.items()
    ]
    return PageTable(
        headers=("management", *names, "total", "lower than without"), rows=(*theirs, *ours)
    )


def _published_row(label: str, runs: tuple[PublishedRun, ...]) -> tuple[PageCell, ...]:
    def total(of: Iterable[PublishedRun]) -> float:
        return sum(run.total_s for run in of) / 3

    lower = 1.0 - total(runs) / total(WITHOUT)
    texts = (
        label,
        *(f"{value:.2f} s" for value in means(runs).values()),
        f"{total(runs):.2f} s",
        f"{100 * lower:.1f} %" if runs is WITH else "",
    )
    return tuple(map(PageCell, texts))


def _case_study(found: ConfigurationFigures) -> PageSection:
    names = [one.name for one in found.applications]
    theirs = [
        StackedBar(label=label, parts_s=means(runs), total=f"{sum(means(runs).values()):.1f} s")
        for label, runs in (("without", WITHOUT), ("with", WITH))
    ]
    ours = [
        StackedBar(
            label=arm,
            parts_s={name: figures.response_s[name].value or 0.0 for name in names},
            total=f"{figures.total_s.value or 0.0:.1f} s",
        )
        for arm, figures in found.arms.items()
    ]
    need, have = found.needed_bytes / _MIB, found.zone_bytes / _MIB
    return PageSection(
        title="Three applications that need 9/8 of the memory",
        what=(
            "Response times one after the other: first the document's (9 GB of 8 GB), then ours "
            f"({need:.0f} MiB of {have:.0f} MiB). Intervals are 95 %, over "
            f"{min(arm.runs for arm in found.arms.values())} repeats."
        ),
        key=dict(zip(names, APPLICATION_COLOURS, strict=False)),
        charts=(
            PageChart(title="The document", svg=response_chart(theirs, label="The document")),
            PageChart(title="Here", svg=response_chart(ours, label="Response times here")),
        ),
        table=case_study_table(found),
    )


def _degrees(found: ConfigurationFigures) -> PageSection:
    rows = [
        (
            one.name,
            f"{one.memory_bytes / _MIB:.0f} MiB",
            str(one.subtasks),
            f"{one.alone_s:.2f} s",
            f"{one.together_s:.2f} s",
            f"{one.degree:.2f}",
        )
        for one in found.applications
    ]
    return PageSection(
        title="Contention degrees",
        what="Measured before any controller ran. The higher the degree, the higher the priority.",
        table=PageTable(
            headers=("application", "needs", "sub-tasks", "alone", "together", "degree w(n)"),
            rows=tuple(tuple(map(PageCell, row)) for row in rows),
        ),
    )


def larger_table(result: SwapExperimentResult) -> PageTable:
    """The larger experiment: each arm over all configurations."""
    rows = tuple(
        (
            PageCell(arm),
            percent(one.lower),
            percent(replace(UNKNOWN, value=one.most_lower)),
            PageCell(one.most_lower_in),
            percent(one.lower_lengthened),
            percent(replace(UNKNOWN, value=one.most_lower_lengthened)),
        )
        for arm, one in result.larger_summary.items()
        if arm != UNMANAGED
    )
    return PageTable(
        headers=(
            "management",
            "total lower, mean",
            "at most",
            "in",
            "lengthened latency lower, mean",
            "at most",
        ),
        rows=rows,
    )


def _larger(result: SwapExperimentResult) -> list[PageSection]:
    by_name = {one.name: one for one in result.larger}
    colours = arm_colours(list(ARMS))
    managed = {arm: one for arm, one in result.larger_summary.items() if arm in list(ARMS)[1:]}
    gains = PageSection(
        title="Four applications that need 4/3 of the memory",
        what=(
            "How much lower the total response time is than without management. Bars are the "
            f"mean over {len(result.larger)} configurations with its 95 % interval, circles the "
            "most in one of them, dashed lines the most that the document has."
        ),
        charts=(
            PageChart(
                svg=gain_chart(
                    managed,
                    colours,
                    {DIRECT: MOST_BY_SWAP, BOTH: MOST_TOGETHER},
                    label="How much lower the total response time is with each arm",
                )
            ),
        ),
        table=larger_table(result),
    )
    panels = PageSection(
        title="Lengthened latency",
        what=(
            "How much longer an application takes than alone, (c(n) - c(1)) / c(1), in the mean "
            "over the applications, with 95 % intervals."
        ),
        key=colours,
        charts=tuple(
            PageChart(title=name.capitalize(), svg=chart)
            for name, chart in latency_panels(by_name, colours).items()
        ),
    )
    return [gains, panels]


def _method(result: SwapExperimentResult) -> PageSection:
    node = result.node
    return PageSection(
        title="Node and method",
        notes=(
            f"Node: {node.kind}, kernel {node.kernel}, {node.cpu_count} CPUs, {node.cpu}, disk "
            f"{node.disk}. The daemon runs in every run, also without management.",
            f"{result.done_runs} of {result.planned_runs} runs are finished; seed {result.seed}. "
            f"Steal time in the worst run: {100 * result.stolen_share_worst:.1f} %.",
            *(f"{arm}: {spec}" for arm, spec in ARMS.items()),
        ),
    )
