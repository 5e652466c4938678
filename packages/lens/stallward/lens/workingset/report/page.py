"""The page of an analysis. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from stallward.evaluation.report.experiment_page import (
    ExperimentPage,
    PageCell,
    PageChart,
    PageSection,
    PageTable,
)
from stallward.evaluation.report.text import short_count
from stallward.lens.workingset.analysis import Analysis
from stallward.lens.workingset.lackey_kernel import CLASS_NAMES
from stallward.lens.workingset.report.charts import (
    COLOURS,
    distribution_chart,
    lifetime_chart,
    size_chart,
    space_time_chart,
    window_chart,
)
from stallward.lens.workingset.report.figures import LRU, WORKING_SET, PolicyCurve
from stallward.lens.workingset.report.map_picture import map_picture
from stallward.lens.workingset.report.result import CurvePoint, WindowFigures, WorkingsetResult


def headline(result: WorkingsetResult) -> str:
    """What was found, in a few sentences."""
    knee = result.policies[WORKING_SET].knee
    words = [
        f"{short_count(sum(result.references.values()))} references to {result.pages:,} pages of "
        f"{result.settings.page_bytes:,} bytes. The working-set policy has its knee at "
        f"{knee.mean_pages:.1f} pages (θ = {knee.parameter:,} {result.settings.clock})"
    ]
    if LRU in result.policies:
        lru = result.policies[LRU].knee
        words.append(f", LRU at {lru.mean_pages:.1f}")
    words.append(".")
    if result.error is not None:
        words.append(f" Only a part of the trace was read: {result.error}")
    return "".join(words)


def policy_table(result: WorkingsetResult) -> PageTable:
    """The policies: knees, inflections and least space-time products."""
    rows = []
    for name, one in result.policies.items():
        points = {
            "knee": one.knee,
            "knee without first touches": one.warm_knee,
            "inflection": one.inflection,
            "least C": one.cheapest,
        }
        rows += [
            (f"{name}, {what}", *_cells(point))
            for what, point in points.items()
            if point is not None
        ]
    return PageTable(
        headers=("", "θ or pages", "mean size x", "g", "g / x", "faults", "C / T"),
        rows=rows,
    )


def _cells(point: CurvePoint) -> tuple[str, ...]:
    error = f"± {short_count(point.standard_error)}" if point.standard_error else ""
    return (
        f"{point.parameter:,}",
        f"{point.mean_pages:.1f}",
        short_count(point.lifetime),
        short_count(point.lifetime / point.mean_pages),
        PageCell(f"{point.faults:,.0f}", error),
        short_count(point.space_time),
    )


def window_table(result: WorkingsetResult) -> PageTable:
    """The windows: sizes, modes, phases and space-time products."""
    return PageTable(
        headers=(
            "θ", "mean", "peak", "faults", "modes, pages", "phases", "of the time",
            "C / T", "with mean size",
        ),
        rows=tuple(map(_window, result.windows)),
    )  # fmt: skip


def _window(one: WindowFigures) -> tuple[str, ...]:
    return (
        f"{one.theta:,}",
        f"{one.mean_pages:.1f}",
        f"{one.peak_pages:,}",
        f"{one.faults:,.0f}",
        ", ".join(f"{mode.pages:.0f}" for mode in one.modes),
        str(len(one.phases)),
        f"{100 * one.phase_share:.0f} %",
        short_count(one.space_time),
        short_count(one.space_time_in_mean),
    )


def workingset_page(
    analysis: Analysis, curves: Mapping[str, PolicyCurve], result: WorkingsetResult
) -> ExperimentPage:
    """The whole page."""
    sections = [
        _lifetimes(curves, result),
        _costs(curves, result),
        *_sizes(analysis, result),
        *_maps(analysis, result),
        _trace(result),
    ]
    return ExperimentPage(
        experiment="workingset",
        source=result.source,
        headline=headline(result),
        sections=sections,
    )


def _lifetimes(curves: Mapping[str, PolicyCurve], result: WorkingsetResult) -> PageSection:
    figures = result.policies
    notes = tuple(
        f"Under {name} the maximum of g / x is at the end: only first touches fault there, so "
        "the function has no knee within this trace."
        for name, one in figures.items()
        if one.knee_at_end
    )
    return PageSection(
        title="Lifetime functions",
        what=(
            "The mean time between faults g. Filled circles are the primary knees, the maxima of "
            "g / x, where a ray from the origin touches the curve; open circles are the "
            "inflections. VMIN knows the future, and no policy lives longer between faults at its "
            "mean size."
        ),
        key={name: COLOURS[name] for name in curves},
        charts=(
            PageChart(
                title="Against the mean resident size",
                svg=lifetime_chart(curves, figures, result.pages),
            ),
            PageChart(
                title="Working-set policy, against the window",
                svg=window_chart(curves[WORKING_SET], figures[WORKING_SET], result.settings.clock),
            ),
        ),
        table=policy_table(result),
        notes=notes,
    )


def _costs(curves: Mapping[str, PolicyCurve], result: WorkingsetResult) -> PageSection:
    settings = result.settings
    notes = []
    if result.break_even_overhead is not None:
        notes.append(
            "The working-set policy costs no more than LRU, each at its cheapest, as long as a "
            f"fault costs the system at most {short_count(result.break_even_overhead)} "
            f"{settings.clock} under it."
            if result.break_even_overhead >= 0.0
            else "The working-set policy costs more than LRU even if a fault costs the system "
            "nothing under it."
        )
    return PageSection(
        title="Space-time product",
        what=(
            "C / T = x + x (D + gamma) / g(x). A fault takes D = "
            f"{short_count(settings.fault_time)} {settings.clock}, and costs the system gamma = "
            f"{short_count(settings.overhead)} under LRU and "
            f"{short_count(settings.working_set_overhead)} under the working-set policy."
        ),
        key={name: COLOURS[name] for name in curves},
        charts=(PageChart(svg=space_time_chart(curves, result.policies)),),
        notes=tuple(notes),
    )


def _sizes(analysis: Analysis, result: WorkingsetResult) -> list[PageSection]:
    shown = [
        (series, window)
        for series, window in zip(analysis.sizes, result.windows, strict=True)
        if series.times.size > 1
    ]
    if not shown:
        return []
    over_time = [
        PageSection(
            title=f"Working-set size for θ = {window.theta:,} {result.settings.clock}",
            what="Pages touched in the last θ. Phases, in which the size stays, are shaded.",
            charts=(PageChart(svg=size_chart(series, window.phases, result.settings.clock)),),
        )
        for series, window in shown
    ]
    distributions = PageSection(
        title="Distribution of working-set sizes",
        what=(
            "The share of the time with each size, smoothed. Circles are modes. C / T is with "
            "the size at each fault, and beside it with the mean size."
        ),
        charts=tuple(
            PageChart(title=f"θ = {window.theta:,}", svg=distribution_chart(series))
            for series, window in shown
        ),
        table=window_table(result),
    )
    return [*over_time, distributions]


def _maps(analysis: Analysis, result: WorkingsetResult) -> list[PageSection]:
    zoom = analysis.settings.zoom
    if not analysis.map.addresses.size:
        return []
    return [
        PageSection(
            title=f"Reference map: {name}",
            what=(
                f"What was touched when, in regions of {analysis.map.region_bytes:,} bytes."
                + (" Gaps in the addresses are left out." if result.settings.zoom is None else "")
            ),
            charts=(
                PageChart(
                    svg=map_picture(
                        analysis.map, CLASS_NAMES.index(name), zoom, result.settings.clock
                    )
                ),
            ),
        )
        for name in result.settings.classes
    ]


def _trace(result: WorkingsetResult) -> PageSection:
    counted = ", ".join(f"{count:,} {name}" for name, count in result.references.items())
    rate = result.settings.lru_rate
    lru = {None: "LRU was left out.", 1.0: "LRU is exact."}.get(
        rate, f"LRU is from {100 * (rate or 0.0):.3g} % of the pages."
    )
    return PageSection(
        title="Trace",
        notes=(
            f"{result.source}: {result.lines:,} lines; {counted}.",
            f"Looked at: {', '.join(result.settings.classes)}. Time is counted in "
            f"{result.settings.clock}: {result.time:,}. {lru}",
        ),
    )
