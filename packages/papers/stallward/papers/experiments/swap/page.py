"""The page of the experiments on swap assignment: the document's figures and ours. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from stallward.evaluation.report.drawing import hue, mark, row_axes, svg_of, tip, whisker
from stallward.evaluation.report.experiment_page import (
    ExperimentPage,
    PageChart,
    PageSection,
    PageTable,
)
from stallward.evaluation.results.interval import UNKNOWN
from stallward.papers.controllers.contention import priority_order
from stallward.papers.experiments.charts import SweepLine, shown_range, sweep_chart
from stallward.papers.experiments.figures import percent, seconds
from stallward.papers.experiments.swap.analysis import UNMANAGED
from stallward.papers.experiments.swap.configurations import (
    CASE_STUDIES,
    COMPUTINGS,
    SUBTASKS,
    WORKLOADS,
)
from stallward.papers.experiments.swap.result import (
    ArmFigures,
    ArmSummary,
    ConfigurationFigures,
    SwapExperimentResult,
)
from stallward.papers.experiments.swap.steps import ALPHA_ARMS, ARMS, BOTH, DIRECT

# ---------- The pictures of the experiments on swap assignment.

_INK, _EDGE = hue("var(--ink)"), hue("var(--card)")
APPLICATION_COLOURS: Final = ("var(--c1)", "var(--c5)", "var(--c0)")
_ARM_COLOURS: Final = (
    "var(--ref0)",
    "var(--c3)",
    "var(--c4)",
    "var(--c5)",
    "var(--c1)",
    "var(--c2)",
)


def arm_colours(arms: Sequence[str]) -> dict[str, str]:
    """Name of an arm -> its colour."""
    return dict(zip(arms, _ARM_COLOURS, strict=False))


@dataclass(frozen=True, slots=True, kw_only=True)
class StackedBar:
    """The response times of some applications, one after the other."""

    label: str
    parts_s: Mapping[str, float]
    """Name of an application -> its response time."""
    total: str
    """The total as text."""


def response_chart(bars: Sequence[StackedBar], *, label: str) -> str:
    """Response times as bars: each application is a part, and the length is the total."""
    most = max((sum(bar.parts_s.values()) for bar in bars), default=1.0)
    names = [bar.label for bar in bars]
    drawn = row_axes(names, 0.0, 1.25 * most, "{x:g} s", width=520.0, row=44.0, left=128.0)
    for place, bar in enumerate(bars):
        at = 0.0
        for colour, (name, size) in zip(APPLICATION_COLOURS, bar.parts_s.items(), strict=False):
            what = tip(f"{name}: {size:.2f} s")
            drawn.barh(place, size, 0.64, at, color=hue(colour), edgecolor=_EDGE, gid=what)
            at += size
        drawn.text(at + 0.01 * most, place, bar.total, va="center", fontsize=12)
    return svg_of(drawn, label)


def latency_panels(
    configurations: Mapping[str, ConfigurationFigures], colours: Mapping[str, str]
) -> dict[str, str]:
    """The lengthened latency against the sub-tasks, a picture for each workload and computing."""
    every = [arm.lengthened for one in configurations.values() for arm in one.arms.values()]
    panels = {
        f"{workload} workload, {computing} computing": f"{workload}-{computing}"
        for workload in WORKLOADS
        for computing in COMPUTINGS
    }
    return {
        title: sweep_chart(
            [
                SweepLine(
                    label=arm,
                    colour=colour,
                    points={
                        float(subtasks): configurations[name].arms[arm].lengthened
                        for subtasks in SUBTASKS
                        if (name := f"{panel}-{subtasks}") in configurations
                    },
                )
                for arm, colour in colours.items()
            ],
            axis="sub-tasks of each application",
            unit="",
            values=SUBTASKS,
            ends=shown_range(every),
            width=500.0,
            label="Lengthened latency against the number of sub-tasks",
        )
        for title, panel in panels.items()
    }


def gain_chart(
    summaries: Mapping[str, ArmSummary],
    colours: Mapping[str, str],
    theirs: Mapping[str, float],
    *,
    label: str,
) -> str:
    """How much lower the total is with each arm, on average over all configurations and at most.

    Args:
        summaries: Name of an arm -> its summary.
        colours: Name of an arm -> its colour.
        theirs: Name of an arm -> the most that the document states for it.
        label: What the picture shows.
    """
    ends = [end for one in summaries.values() for end in (one.lower.low, one.lower.value) if end]
    low = 1.05 * min(0.0, *ends, 0.0)
    drawn = row_axes(
        list(summaries),
        low,
        0.8,
        lambda x, _: f"{100 * x:.0f} %",
        width=760.0,
        row=40.0,
        left=128.0,
    )
    for place, (arm, one) in enumerate(summaries.items()):
        if one.lower.value is not None:
            what = tip(f"{arm}: {100 * one.lower.value:.0f} % lower in the mean")
            drawn.barh(place, one.lower.value, 0.5, color=hue(colours[arm]), gid=what)
        whisker(drawn, place, one.lower, "var(--ink)", across=True)
        if one.most_lower is not None:
            what = f"{arm}: at most {100 * one.most_lower:.0f} %, in {one.most_lower_in}"
            mark(drawn, (one.most_lower, place), colours[arm], what, hollow=True)
        if arm in theirs:
            drawn.plot([theirs[arm]] * 2, [place - 0.4, place + 0.4], color=_INK, linestyle="--")
            drawn.text(theirs[arm] + 0.01, place - 0.28, "document, at most", fontsize=12)
    return svg_of(drawn, label)


# ---------- The figures of the document, as its tables have them

SOURCE: Final = "Su-Wei Yang, Memory Contention Aware Swap Space Management, NTUST 2019"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRun:
    """One run of its case study, in seconds."""

    t1_s: float
    t2_s: float
    t3_s: float
    total_s: float
    """The total as printed: that of the second run without management is 0.70 s more than the
    sum."""


WITHOUT: Final = (
    PublishedRun(t1_s=23.39, t2_s=22.97, t3_s=12.44, total_s=58.80),
    PublishedRun(t1_s=23.27, t2_s=22.75, t3_s=11.65, total_s=58.37),
    PublishedRun(t1_s=23.90, t2_s=22.68, t3_s=12.48, total_s=59.06),
)
"""Three applications that need 9 GB on a Jetson TX2 with 8 GB, without swap management."""
WITH: Final = (
    PublishedRun(t1_s=13.44, t2_s=14.31, t3_s=21.52, total_s=49.27),
    PublishedRun(t1_s=14.48, t2_s=13.85, t3_s=21.64, total_s=49.97),
    PublishedRun(t1_s=13.53, t2_s=14.33, t3_s=21.37, total_s=49.23),
)
"""The same with it."""
MOST_BY_SWAP: Final = 0.166
"""How much lower latency is at most by eliminating the thrashing, on the TX2."""
MOST_TOGETHER: Final = 0.413
"""How much lower it is at most with scheduling and direct swap access together."""
UNLABELLED_S: Final = (11.52, 10.79)
"""The averages of its last two tables, which say neither what ran nor what changed."""


def means(runs: tuple[PublishedRun, ...]) -> dict[str, float]:
    """The mean response time of each application, in s."""
    count = len(runs)
    return {
        "T1": sum(run.t1_s for run in runs) / count,
        "T2": sum(run.t2_s for run in runs) / count,
        "T3": sum(run.t3_s for run in runs) / count,
    }


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
    if result.alpha:
        sections.append(_alpha(result.alpha))
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
            f"{percent(arms[DIRECT].lower)}, with scheduling by contention by "
            f"{percent(arms[BOTH].lower)}; the document has {100 * MOST_BY_SWAP:.1f} %."
        )
    both = result.larger_summary.get(BOTH)
    if both is not None and both.most_lower is not None:
        parts.append(
            f"With four applications both lower it by at most {100 * both.most_lower:.0f} %; the "
            f"document has {100 * MOST_TOGETHER:.1f} %."
        )
    for order, one in _by_order(result.alpha).items():
        given = {arm: figures for arm, figures in one.arms.items() if arm != UNMANAGED}
        best = min(given, key=lambda arm: given[arm].total_s.value or math.inf)
        parts.append(
            f"With the order {order} the total is lowest for {best}: "
            f"{percent(given[best].lower)} lower than without management."
        )
    return " ".join(parts) or "No repeat is complete yet."


def case_study_table(found: ConfigurationFigures) -> PageTable:
    """The case study: the document's means, and ours with intervals."""
    names = [one.name for one in found.applications]
    theirs = [
        _published_row("document: without", WITHOUT),
        _published_row("document: with", WITH),
    ]
    ours = [_arm_row(arm, figures) for arm, figures in found.arms.items()]
    return PageTable(headers=_arm_headers(names), rows=(*theirs, *ours))


def _arm_headers(names: Sequence[str]) -> tuple[str, ...]:
    faults = f"major faults of {', '.join(names)}"
    return ("management", *names, "total", "lower than without", faults)


def _arm_row(arm: str, figures: ArmFigures) -> tuple[str, ...]:
    faults = [figures.major_faults.get(name) for name in figures.response_s]
    return (
        arm,
        *map(seconds, figures.response_s.values()),
        seconds(figures.total_s),
        percent(figures.lower) if arm != UNMANAGED else "",
        " / ".join("-" if count is None else f"{count:,.0f}" for count in faults),
    )


def _published_row(label: str, runs: tuple[PublishedRun, ...]) -> tuple[str, ...]:
    def total(of: Iterable[PublishedRun]) -> float:
        return sum(run.total_s for run in of) / 3

    lower = 1.0 - total(runs) / total(WITHOUT)
    return (
        label,
        *(f"{value:.2f} s" for value in means(runs).values()),
        f"{total(runs):.2f} s",
        f"{100 * lower:.1f} %" if runs is WITH else "",
        "",
    )


def _case_study(found: ConfigurationFigures) -> PageSection:
    names = [one.name for one in found.applications]
    theirs = [
        StackedBar(label=label, parts_s=means(runs), total=f"{sum(means(runs).values()):.1f} s")
        for label, runs in (("without", WITHOUT), ("with", WITH))
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
            PageChart(title="Here", svg=response_chart(_bars(found), label="Response times here")),
        ),
        table=case_study_table(found),
    )


def _bars(found: ConfigurationFigures) -> list[StackedBar]:
    return [
        StackedBar(
            label=arm,
            parts_s={name: time.value or 0.0 for name, time in figures.response_s.items()},
            total=f"{figures.total_s.value or 0.0:.1f} s",
        )
        for arm, figures in found.arms.items()
    ]


def _by_order(studies: Sequence[ConfigurationFigures]) -> dict[str, ConfigurationFigures]:
    """The order in which programs use their data -> the case study."""
    return {CASE_STUDIES[one.name].programs[0].order: one for one in studies}


def alpha_table(studies: Sequence[ConfigurationFigures]) -> PageTable:
    """The case studies with given shares of the lowest priority in swap."""
    names = [one.name for one in studies[0].applications]
    return PageTable(
        headers=("order", *_arm_headers(names)),
        rows=tuple(
            (order, *_arm_row(arm, figures))
            for order, one in _by_order(studies).items()
            for arm, figures in one.arms.items()
        ),
    )


def _lowest(found: ConfigurationFigures) -> str:
    """The name of the application of lowest priority."""
    degrees = [one.degree for one in found.applications]
    return found.applications[priority_order(degrees)[-1]].name


def _alpha(studies: Sequence[ConfigurationFigures]) -> PageSection:
    orders = _by_order(studies)
    lowest = ", ".join(f"{_lowest(one)} ({order})" for order, one in orders.items())
    return PageSection(
        title="Direct swap access with a given alpha",
        what=(
            "The share alpha of the application of lowest priority is in swap, whatever the formula "
            f"says, and the CPU is left alone. That application is {lowest}. Intervals are 95 %, "
            f"over {min(arm.runs for one in studies for arm in one.arms.values())} repeats."
        ),
        key=dict(
            zip((one.name for one in studies[0].applications), APPLICATION_COLOURS, strict=False)
        ),
        charts=tuple(
            PageChart(
                title=order.capitalize(),
                svg=response_chart(_bars(one), label=f"Response times with the order {order}"),
            )
            for order, one in orders.items()
        ),
        table=alpha_table(studies),
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
            rows=rows,
        ),
    )


def larger_table(result: SwapExperimentResult) -> PageTable:
    """The larger experiment: each arm over all configurations."""
    rows = tuple(
        (
            arm,
            percent(one.lower),
            percent(replace(UNKNOWN, value=one.most_lower)),
            one.most_lower_in,
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
            *(f"{arm}: {spec}" for arm, spec in (ALPHA_ARMS if result.alpha else ARMS).items()),
        ),
    )
