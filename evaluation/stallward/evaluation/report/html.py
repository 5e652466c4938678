"""``report.html`` of a comparison: one file, made from the recordings of the blocks.

It loads nothing from the network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from stallward.env.recording.recording import load_recording
from stallward.env.recording.run_info import NodeInfo
from stallward.evaluation.arms import ALONE, AMPLE
from stallward.evaluation.blocks.store import BLOCK_FILE, FinishedBlock
from stallward.evaluation.measures.block_measures import reduce, series_of
from stallward.evaluation.report.charts import (
    Array,
    Style,
    Timeline,
    cdf_chart,
    styles,
    timeline_chart,
    timeline_of,
    trade_chart,
    work_chart,
)
from stallward.evaluation.report.experiment_page import PageCell
from stallward.evaluation.report.page import put_page, render_template
from stallward.evaluation.report.text import (
    APPLICATION_HEADERS,
    COLUMNS,
    Kind,
    Opening,
    about_applications,
    application_rows,
    headline,
    number,
    seconds,
    short_names,
    span,
    table_figures,
    target,
)
from stallward.evaluation.results.comparison import (
    ArmResult,
    ComparisonResult,
    Contrast,
    Table,
    load_result,
)
from stallward.evaluation.results.interval import Interval
from stallward.evaluation.results.serialise import load_if_there

# ---------- The method of a comparison as lines of a report


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A line about the method."""

    name: str
    text: str


_IN_BLOCKS: Final = "{label}: {count} in {blocks} blocks"


def method_facts(result: ComparisonResult) -> list[Fact]:
    """The known facts about the node and the method; unknown facts are left out."""
    method, node, table = result.method, result.node, result.table
    lifted = [label for label, arm in table.arms.items() if arm.facts.budgets_lifted]
    memory = f"{node.memory_total_bytes / 2**30:.1f} GiB" if node.memory_total_bytes else ""
    background = ", ".join(f"{name} ({unit})" for name, unit in method.unit_of_group.items())
    target_text = _targets(table)
    if method.controller_slo_ms != table.slo_ms:  # older results judged by another target
        target_text += f"; controllers were given {number(method.controller_slo_ms, 'ms')} ms"
    invalid = _counted(table, "invalid_blocks", "{label} {count}")
    if invalid:
        invalid += " (the sandbox ran out of memory or the host was busy; run again)"
    blocks = (
        f"{method.rounds} rounds of {seconds(method.block_s)} after "
        f"{seconds(method.burn_in_s)} of burn-in, order drawn from seed {method.seed}"
    )
    facts = [
        Fact(name="node", text=_in_words(node)),
        *(Fact(name="node after resuming", text=_in_words(one)) for one in result.other_nodes),
        Fact(name="memory", text=memory),
        Fact(name="sandbox", text=f"{method.sandbox_limit_bytes / 2**20:.0f} MiB"),
        Fact(name="background", text=background),
        Fact(name="SLO", text=target_text),
        Fact(name="blocks", text=blocks),
        Fact(name="intervals", text=_intervals(table)),
        Fact(name="invalid blocks", text=invalid or "none"),
        Fact(name="policies", text=", ".join(f"{k}: {v}" for k, v in method.policies.items())),
        Fact(name="arms left out", text=" ".join(method.left_out.values())),
        Fact(name="* budgets lifted", text=", ".join(lifted)),
        Fact(
            name="† background processes terminated",
            text=_counted(table, "terminated_processes", _IN_BLOCKS),
        ),
        Fact(
            name="† killed by the kernel under an arm's limit",
            text=_counted(table, "limit_kills", _IN_BLOCKS),
        ),
    ]
    return [fact for fact in facts if fact.text]


def _targets(table: Table) -> str:
    if table.applications is None:
        return f"{target(table)} in each window ({table.slo_source})"
    return ", ".join(
        f"{one.application} p{100 * one.slo_quantile:g} at most {number(one.slo_ms, 'ms')} ms"
        for one in table.applications[AMPLE]
    )


def _intervals(table: Table) -> str:
    if table.resampled == "blocks":
        return (
            "95 %, rounds resampled 2000 times jointly for arm and references, t-corrected for "
            "the number of rounds"
        )
    return "95 %, windows inside the single block resampled; variation between blocks is missing"


def _in_words(node: NodeInfo) -> str:
    known = {
        "kind": node.kind,
        "kernel": node.kernel,
        "cpu_count": node.cpu_count,
        "disk": node.disk,
        "cpu": node.cpu,
    }
    return ", ".join(f"{key} {value}" for key, value in known.items() if value != "")


def _counted(table: Table, fact: str, text: str) -> str:
    """The arms of which a fact counts something, each with the count in words."""
    counts = {label: getattr(arm.facts, fact) for label, arm in table.arms.items()}
    return ", ".join(
        text.format(label=label, count=count, blocks=table.arms[label].blocks)
        for label, count in counts.items()
        if count
    )


REPORT_FILE: Final = "report.html"
_MODES: Final = {"live": "measured live", "twin": "computed on the twin, not measured"}


def write_report(directory: Path, opening: Opening | None = None) -> Path:
    """Write the report of the comparison in ``directory``.

    Args:
        directory: Where the comparison is, and where the report goes.
        opening: What the page opens with, in place of the headline that every comparison has.

    Raises:
        EvaluationError: If there is no result in it.
        RecordingError: If one of its blocks cannot be opened.
    """
    result = load_result(directory)
    latencies, timelines = _load(directory, result)
    path = directory / REPORT_FILE
    put_page(path, render_report(result, latencies, timelines, opening))
    return path


def _load(
    directory: Path, result: ComparisonResult
) -> tuple[dict[str, Array], dict[str, Timeline]]:
    """Load the latencies of every condition, and the block with the median p95 of each arm."""
    blocks: dict[str, list[tuple[Path, Array]]] = {}
    for path in sorted((directory / "blocks").iterdir()):
        finished = load_if_there(FinishedBlock, path / BLOCK_FILE)
        if finished is None or not 1 <= finished.block.round <= result.method.rounds:
            continue
        latency_ms = reduce(series_of(load_recording(path, several=True))).latency_ms
        blocks.setdefault(finished.block.condition, []).append((path, latency_ms))
    shown = [ALONE, AMPLE, *result.table.arms]
    latencies = {name: np.concatenate([latency for _, latency in blocks[name]]) for name in shown}
    timelines = {}
    for name in result.table.arms:
        by_p95 = sorted(
            (b for b in blocks[name] if b[1].size), key=lambda b: float(np.quantile(b[1], 0.95))
        )
        if by_p95:
            path = by_p95[(len(by_p95) - 1) // 2][0]
            timelines[name] = timeline_of(load_recording(path, several=True), name)
    return latencies, timelines


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of the table of conditions; a cell is ``None`` where a figure makes no sense."""

    style: Style
    cells: tuple[PageCell | None, ...]
    marks: str = ""
    """Signs behind the name, which the method explains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContrastRow:
    """A row of the table of pairs of arms."""

    arm: str
    against: str
    cells: tuple[tuple[PageCell, bool], ...]
    """Each figure, and whether its interval holds an effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineFigure:
    """One block of an arm: its chart, and how much it used levers."""

    label: str
    levers: str
    chart: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ContrastColumn:
    """A figure of pairs of arms; ``no_effect`` is its value where the two are alike."""

    title: str
    of: Callable[[Contrast], Interval]
    kind: Kind
    no_effect: float = 1.0


_CONTRASTS: Final = (
    ContrastColumn(title="mean", of=lambda c: c.mean_ratio, kind="number"),
    ContrastColumn(title="p95", of=lambda c: c.p95_ratio, kind="number"),
    ContrastColumn(title="p99", of=lambda c: c.p99_ratio, kind="number"),
    ContrastColumn(title="background", of=lambda c: c.background_work_ratio, kind="number"),
    ContrastColumn(
        title="SLO met, difference",
        of=lambda c: c.slo_attainment_difference,
        kind="share",
        no_effect=0.0,
    ),
)


def render_report(
    result: ComparisonResult,
    latencies_ms: Mapping[str, Array],
    timelines: Mapping[str, Timeline],
    opening: Opening | None = None,
) -> str:
    """The whole page. Pure."""
    table, rounds = result.table, result.method.rounds
    style = styles(list(table.arms))
    return render_template(
        "report.html.j2",
        scenario=result.scenario,
        summary=result.method.summary,
        mode=_MODES[result.mode],
        blocks=f"{rounds} block{'s' if rounds != 1 else ''}",
        headline=headline(result) if opening is None else opening.headline,
        opening=opening,
        styles=list(style.values()),
        names=short_names(style),
        columns=COLUMNS,
        rows=_rows(table, style),
        application_headers=APPLICATION_HEADERS,
        applications=application_rows(result),
        about_applications=about_applications(result),
        latency_chart=cdf_chart(latencies_ms, style, table.slo_ms),
        trade_chart=trade_chart(table, style),
        work_chart=work_chart(table, style),
        contrast_titles=[column.title for column in _CONTRASTS],
        contrasts=[_contrast(pair) for pair in table.contrasts],
        timelines=_timelines(table, timelines, style),
        method=method_facts(result),
    )


def _rows(table: Table, style: Mapping[str, Style]) -> list[Row]:
    return [
        Row(
            style=style[label],
            cells=tuple(
                None if figure is None else _cell(figure, column.kind)
                for figure, column in zip(figures, COLUMNS, strict=True)
            ),
            marks=_marks(table.arms[label]) if label in table.arms else "",
        )
        for label, figures in table_figures(table).items()
    ]


def _marks(arm: ArmResult) -> str:
    lifted = " *" if arm.facts.budgets_lifted else ""
    return lifted + (" †" if arm.facts.ended_processes else "")


def _cell(figure: Interval, kind: Kind) -> PageCell:
    return PageCell(number(figure.value, kind), span(figure, kind))


def _contrast(pair: Contrast) -> ContrastRow:
    """A pair of arms; cells whose interval holds no effect are not certain."""
    return ContrastRow(
        arm=pair.arm,
        against=pair.against,
        cells=tuple(
            (_cell(column.of(pair), column.kind), column.of(pair).excludes(column.no_effect))
            for column in _CONTRASTS
        ),
    )


def _timelines(
    table: Table, timelines: Mapping[str, Timeline], style: Mapping[str, Style]
) -> list[TimelineFigure]:
    if not timelines:
        return []
    every = np.concatenate([t.latency_ms for t in timelines.values()])
    low_ms = 0.8 * float(np.quantile(every, 0.005))
    high_ms = 1.3 * max(float(every.max()), table.slo_ms)
    return [
        TimelineFigure(
            label=label,
            levers=_levers(timeline),
            chart=timeline_chart(
                timeline, style[label], slo_ms=table.slo_ms, low_ms=low_ms, high_ms=high_ms
            ),
        )
        for label, timeline in timelines.items()
    ]


def _levers(timeline: Timeline) -> str:
    used = sum(len(lane.marks) for lane in timeline.lanes)
    return f"{used} lever change{'s' if used != 1 else ''}" if used else "no lever was used"
