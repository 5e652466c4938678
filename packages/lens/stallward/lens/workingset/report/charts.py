"""The charts of an analysis: lifetime, space-time, sizes and their distribution. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np

from stallward.evaluation.report.drawing import RULE, axes, draw, hue, mark, svg_of, tip
from stallward.evaluation.report.text import short_count
from stallward.lens.workingset.report.figures import LRU, VMIN, WORKING_SET, PolicyCurve
from stallward.lens.workingset.report.result import CurvePoint, PhaseFigures, PolicyFigures
from stallward.lens.workingset.size_distribution import size_distribution
from stallward.lens.workingset.sizes import SizeSeries

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS: Final = {WORKING_SET: "var(--c0)", LRU: "var(--c1)", VMIN: "var(--ref0)"}
_WIDE: Final = (1040.0, 330.0)


def lifetime_chart(
    curves: Mapping[str, PolicyCurve], figures: Mapping[str, PolicyFigures], pages: int
) -> str:
    """The lifetime functions against the mean resident size, with their knees."""
    knees = [one.knee for one in figures.values()]
    reach = min(3.0 * max(knee.mean_pages for knee in knees), float(pages))
    near = [one.function.mean_pages <= reach for one in curves.values()]
    highest = max(
        float(one.function.lifetime[mask].max(initial=1.0))
        for one, mask in zip(curves.values(), near, strict=True)
    )
    drawn = axes((0.0, 0.0), (reach, 1.05 * highest), ("mean resident size x, pages", "g(x)"))
    for name, curve in curves.items():
        knee = figures[name].knee
        ray = min(reach / knee.mean_pages, 1.05 * highest / knee.lifetime)
        drawn.plot([0.0, ray * knee.mean_pages], [0.0, ray * knee.lifetime], **RULE)
        inside = curve.function.mean_pages <= reach
        draw(
            drawn,
            curve.function.mean_pages[inside],
            curve.function.lifetime[inside],
            COLOURS[name],
        )
        _mark_points(drawn, name, figures[name])
    return svg_of(drawn, "Lifetime against mean resident size")


def _mark_points(drawn: Axes, name: str, figures: PolicyFigures) -> None:
    def mark_point(point: CurvePoint, what: str, *, hollow: bool) -> None:
        label = f"{name}, {what}: x = {point.mean_pages:.1f}, g = {short_count(point.lifetime)}"
        at = (point.mean_pages, point.lifetime)
        mark(drawn, at, COLOURS[name], label, hollow=hollow)

    mark_point(figures.knee, "knee", hollow=False)
    if figures.inflection is not None:
        mark_point(figures.inflection, "inflection", hollow=True)


def window_chart(curve: PolicyCurve, figures: PolicyFigures, unit: str) -> str:
    """The lifetime under the working-set policy against the window."""
    function = curve.function
    drawn = axes(
        (1.0, float(function.lifetime.min())),
        (max(float(function.parameter[-1]), 10.0), 1.3 * float(function.lifetime.max())),
        (f"window θ, {unit}", "g(θ)"),
        log=(True, True),
    )
    draw(drawn, function.parameter.astype(np.float64), function.lifetime, COLOURS[WORKING_SET])
    at = (float(figures.knee.parameter), figures.knee.lifetime)
    label = f"knee: θ = {figures.knee.parameter:,}"
    mark(drawn, at, COLOURS[WORKING_SET], label, hollow=False)
    return svg_of(drawn, "Lifetime against the window")


def space_time_chart(
    curves: Mapping[str, PolicyCurve], figures: Mapping[str, PolicyFigures]
) -> str:
    """The space-time product against the mean resident size."""
    lowest = min(float(one.space_time.min()) for one in curves.values())
    ends = [one.function.mean_pages for one in curves.values()]
    drawn = axes(
        (max(min(float(one[0]) for one in ends), 1.0), 0.7 * lowest),
        (max(float(one[-1]) for one in ends) * 1.05 + 1.0, 100.0 * lowest),
        ("mean resident size x, pages", "C / T, pages"),
        log=(True, True),
        size=_WIDE,
    )
    for name, curve in curves.items():
        draw(drawn, curve.function.mean_pages, curve.space_time, COLOURS[name])
        least = figures[name].cheapest
        label = f"{name}, least: {short_count(least.space_time)} at x = {least.mean_pages:.1f}"
        at = (least.mean_pages, least.space_time)
        mark(drawn, at, COLOURS[name], label, hollow=False)
    return svg_of(drawn, "Space-time product")


def size_chart(series: SizeSeries, phases: tuple[PhaseFigures, ...], unit: str) -> str:
    """The working-set size over time; phases are shaded."""
    end = float(series.times[-1])
    drawn = axes(
        (0.0, 0.0),
        (end, 1.05 * max(float(series.pages.max()), 1.0)),
        (f"time, {unit}", "pages"),
        size=_WIDE,
    )
    for phase in phases:
        what = f"phase of {phase.mean_pages:.0f} pages"
        drawn.axvspan(phase.begin, phase.end, color=hue("var(--shade)"), gid=tip(what), zorder=0)
    draw(
        drawn,
        series.times.astype(np.float64),
        series.pages.astype(np.float64),
        COLOURS[WORKING_SET],
    )
    return svg_of(drawn, "Working-set size over time")


def distribution_chart(series: SizeSeries) -> str:
    """How often the working set has which size, with its modes."""
    found = size_distribution(series.pages)
    middles = (found.edges[:-1] + found.edges[1:]) / 2.0
    drawn = axes(
        (float(found.edges[0]), 0.0),
        (float(found.edges[-1]), 1.1 * float(max(found.smooth.max(), 1e-9))),
        ("working-set size, pages", "share of the time"),
    )
    colour = hue(COLOURS[WORKING_SET])
    drawn.fill_between(middles, found.smooth, color=colour, alpha=0.45)
    drawn.plot(middles, found.smooth, color=colour, linewidth=1)
    for mode in found.modes:
        height = float(np.interp(mode.pages, middles, found.smooth))
        label = f"{mode.pages:.0f} pages: {100 * mode.share:.0f} % of the time around it"
        mark(drawn, (mode.pages, height), "var(--ink)", label, hollow=True)
    return svg_of(drawn, "Distribution of working-set sizes")
