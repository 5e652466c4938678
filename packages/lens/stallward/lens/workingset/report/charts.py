"""The charts of an analysis: lifetime, space-time, sizes and their distribution. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from stallward.evaluation.report.svg import (
    BELOW,
    HEIGHT,
    Frame,
    area,
    axes,
    draw,
    line,
    mark,
    short_count,
    tag,
    title,
)
from stallward.lens.workingset.report.figures import LRU, VMIN, WORKING_SET, PolicyCurve
from stallward.lens.workingset.report.result import CurvePoint, PhaseFigures, PolicyFigures
from stallward.lens.workingset.size_distribution import size_distribution
from stallward.lens.workingset.sizes import SizeSeries

COLOURS: Final = {WORKING_SET: "var(--c0)", LRU: "var(--c1)", VMIN: "var(--ref0)"}


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
    frame = axes((0.0, 0.0), (reach, 1.05 * highest), ("mean resident size x, pages", "g(x)"))
    for name, curve in curves.items():
        knee = figures[name].knee
        ray = min(reach / knee.mean_pages, 1.05 * highest / knee.lifetime)
        end = (frame.x(ray * knee.mean_pages), frame.y(ray * knee.lifetime))
        frame.parts.append(line(frame.x(0), frame.y(0), *end, class_="rule"))
        inside = curve.function.mean_pages <= reach
        draw(
            frame,
            curve.function.mean_pages[inside],
            curve.function.lifetime[inside],
            COLOURS[name],
        )
        _mark_points(frame, name, figures[name])
    return frame.svg("Lifetime against mean resident size")


def _mark_points(frame: Frame, name: str, figures: PolicyFigures) -> None:
    def mark_point(point: CurvePoint, what: str, *, hollow: bool) -> None:
        label = f"{name}, {what}: x = {point.mean_pages:.1f}, g = {short_count(point.lifetime)}"
        at = (point.mean_pages, point.lifetime)
        mark(frame, at, COLOURS[name], label, hollow=hollow)

    mark_point(figures.knee, "knee", hollow=False)
    if figures.inflection is not None:
        mark_point(figures.inflection, "inflection", hollow=True)


def window_chart(curve: PolicyCurve, figures: PolicyFigures, unit: str) -> str:
    """The lifetime under the working-set policy against the window."""
    function = curve.function
    frame = axes(
        (1.0, float(function.lifetime.min())),
        (max(float(function.parameter[-1]), 10.0), 1.3 * float(function.lifetime.max())),
        (f"window θ, {unit}", "g(θ)"),
        log=(True, True),
    )
    draw(frame, function.parameter.astype(np.float64), function.lifetime, COLOURS[WORKING_SET])
    at = (float(figures.knee.parameter), figures.knee.lifetime)
    label = f"knee: θ = {figures.knee.parameter:,}"
    mark(frame, at, COLOURS[WORKING_SET], label, hollow=False)
    return frame.svg("Lifetime against the window")


def space_time_chart(
    curves: Mapping[str, PolicyCurve], figures: Mapping[str, PolicyFigures]
) -> str:
    """The space-time product against the mean resident size."""
    lowest = min(float(one.space_time.min()) for one in curves.values())
    ends = [one.function.mean_pages for one in curves.values()]
    frame = axes(
        (max(min(float(one[0]) for one in ends), 1.0), 0.7 * lowest),
        (max(float(one[-1]) for one in ends) * 1.05 + 1.0, 100.0 * lowest),
        ("mean resident size x, pages", "C / T, pages"),
        log=(True, True),
        width=1040.0,
    )
    for name, curve in curves.items():
        draw(frame, curve.function.mean_pages, curve.space_time, COLOURS[name])
        least = figures[name].cheapest
        label = f"{name}, least: {short_count(least.space_time)} at x = {least.mean_pages:.1f}"
        at = (least.mean_pages, least.space_time)
        mark(frame, at, COLOURS[name], label, hollow=False)
    return frame.svg("Space-time product")


def size_chart(series: SizeSeries, phases: tuple[PhaseFigures, ...], unit: str) -> str:
    """The working-set size over time; phases are shaded."""
    end = float(series.times[-1])
    frame = axes(
        (0.0, 0.0),
        (end, 1.05 * max(float(series.pages.max()), 1.0)),
        (f"time, {unit}", "pages"),
        width=1040.0,
    )
    for phase in phases:
        left, right = frame.x(float(phase.begin)), frame.x(float(phase.end))
        label = title(f"phase of {phase.mean_pages:.0f} pages")
        shade = tag(
            "rect", label, x=left, y=20, width=right - left, height=HEIGHT - BELOW - 20,
            class_="burn",
        )  # fmt: skip
        frame.parts.insert(0, shade)
    draw(
        frame,
        series.times.astype(np.float64),
        series.pages.astype(np.float64),
        COLOURS[WORKING_SET],
    )
    return frame.svg("Working-set size over time")


def distribution_chart(series: SizeSeries) -> str:
    """How often the working set has which size, with its modes."""
    found = size_distribution(series.pages)
    middles = (found.edges[:-1] + found.edges[1:]) / 2.0
    frame = axes(
        (float(found.edges[0]), 0.0),
        (float(found.edges[-1]), 1.1 * float(max(found.smooth.max(), 1e-9))),
        ("working-set size, pages", "share of the time"),
    )
    drawn = area(
        frame.x.many(middles),
        frame.y.many(found.smooth),
        frame.y(0.0),
        fill=COLOURS[WORKING_SET],
        fill_opacity=0.45,
        stroke=COLOURS[WORKING_SET],
    )
    frame.parts.append(drawn)
    for mode in found.modes:
        height = float(np.interp(mode.pages, middles, found.smooth))
        label = f"{mode.pages:.0f} pages: {100 * mode.share:.0f} % of the time around it"
        mark(frame, (mode.pages, height), "var(--ink)", label, hollow=True)
    return frame.svg("Distribution of working-set sizes")
