"""The charts of an analysis: lifetime, space-time, sizes and their distribution. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.env.lens.size_distribution import size_distribution
from stallward.env.lens.sizes import SizeSeries
from stallward.evaluation.lens.figures import LRU, WORKING_SET, PolicyCurve
from stallward.evaluation.lens.result import CurvePoint, PhaseFigures, PolicyFigures
from stallward.evaluation.report.svg import (
    Scale,
    area,
    line,
    linear_ticks,
    log10,
    log_ticks,
    polyline,
    svg,
    tag,
    text,
    title,
)

COLOURS: Final = {WORKING_SET: "var(--c0)", LRU: "var(--c1)"}
_POINTS: Final = 800
_HEIGHT: Final = 330.0
_LEFT: Final = 64.0
_BELOW: Final = 46.0

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """Axes, and the scales of what is drawn in them."""

    x: Scale
    y: Scale
    parts: list[str]
    width: float


def short_count(value: float) -> str:
    """A count of things or of time in few characters: 1.5 M."""
    for size, name in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{name}"
    return f"{value:.3g}"


def _frame(x: Scale, y: Scale, names: tuple[str, str], width: float) -> _Frame:
    bottom = _HEIGHT - _BELOW
    parts = [
        line(_LEFT, bottom, width - 14, bottom, class_="axis"),
        text((_LEFT + width) / 2, _HEIGHT - 8, names[0], class_="mid"),
        text(4, 12, names[1]),
    ]
    for value in _ticks(x):
        parts.append(line(x(value), 20, x(value), bottom, class_="grid"))
        parts.append(text(x(value), bottom + 17, short_count(value), class_="mid"))
    for value in _ticks(y):
        parts.append(line(_LEFT, y(value), width - 14, y(value), class_="grid"))
        parts.append(text(_LEFT - 6, y(value) + 4, short_count(value), class_="end"))
    return _Frame(x=x, y=y, parts=parts, width=width)


def _ticks(scale: Scale) -> list[float]:
    logarithmic = scale.warp is log10
    return (log_ticks if logarithmic else linear_ticks)(scale.low, scale.high)


def _axes(
    low: tuple[float, float],
    high: tuple[float, float],
    names: tuple[str, str],
    *,
    log: tuple[bool, bool] = (False, False),
    width: float = 520.0,
) -> _Frame:
    warps: list[Callable[[Array], Array]] = [log10 if one else np.asarray for one in log]
    x = Scale(low=low[0], high=high[0], start=_LEFT, end=width - 14, warp=warps[0])
    y = Scale(low=low[1], high=high[1], start=_HEIGHT - _BELOW, end=20, warp=warps[1])
    return _frame(x, y, names, width)


def _thinned(x: Array, y: Array, pixels: Array) -> tuple[Array, Array]:
    """At most two points for each pixel, its lowest and its highest."""
    if x.size <= 2 * _POINTS:
        return x, y
    columns = np.floor(pixels).astype(np.int64)
    starts = np.flatnonzero(np.diff(columns, prepend=columns[0] - 1))
    lows, highs = np.minimum.reduceat(y, starts), np.maximum.reduceat(y, starts)
    return np.repeat(x[starts], 2), np.column_stack([lows, highs]).ravel()


def _draw(frame: _Frame, x: Array, y: Array, colour: str) -> None:
    thin_x, thin_y = _thinned(x, y, frame.x.many(x))
    drawn = polyline(
        frame.x.many(thin_x),
        frame.y.many(thin_y),
        stroke=colour,
        stroke_width=1.8,
        stroke_linejoin="round",
    )
    frame.parts.append(drawn)


def _mark(frame: _Frame, at: tuple[float, float], colour: str, what: str, *, hollow: bool) -> None:
    circle = tag(
        "circle",
        title(what),
        cx=frame.x(at[0]),
        cy=frame.y(at[1]),
        r=4.5,
        fill="var(--card)" if hollow else colour,
        stroke=colour if hollow else "var(--card)",
        stroke_width=1.8,
    )
    frame.parts.append(circle)


def lifetime_chart(
    curves: Mapping[str, PolicyCurve], figures: Mapping[str, PolicyFigures], pages: int
) -> str:
    """Both lifetime functions against the mean resident size, with their knees."""
    knees = [one.knee for one in figures.values()]
    reach = min(3.0 * max(knee.mean_pages for knee in knees), float(pages))
    near = [one.function.mean_pages <= reach for one in curves.values()]
    highest = max(
        float(one.function.lifetime[mask].max(initial=1.0))
        for one, mask in zip(curves.values(), near, strict=True)
    )
    frame = _axes((0.0, 0.0), (reach, 1.05 * highest), ("mean resident size x, pages", "g(x)"))
    for name, curve in curves.items():
        knee = figures[name].knee
        ray = min(reach / knee.mean_pages, 1.05 * highest / knee.lifetime)
        end = (frame.x(ray * knee.mean_pages), frame.y(ray * knee.lifetime))
        frame.parts.append(line(frame.x(0), frame.y(0), *end, class_="rule"))
        inside = curve.function.mean_pages <= reach
        _draw(
            frame,
            curve.function.mean_pages[inside],
            curve.function.lifetime[inside],
            COLOURS[name],
        )
        _mark_points(frame, name, figures[name])
    return svg(frame.width, _HEIGHT, frame.parts, label="Lifetime against mean resident size")


def _mark_points(frame: _Frame, name: str, figures: PolicyFigures) -> None:
    def mark(point: CurvePoint, what: str, *, hollow: bool) -> None:
        label = f"{name}, {what}: x = {point.mean_pages:.1f}, g = {short_count(point.lifetime)}"
        at = (point.mean_pages, point.lifetime)
        _mark(frame, at, COLOURS[name], label, hollow=hollow)

    mark(figures.knee, "knee", hollow=False)
    if figures.inflection is not None:
        mark(figures.inflection, "inflection", hollow=True)


def window_chart(curve: PolicyCurve, figures: PolicyFigures, unit: str) -> str:
    """The lifetime under the working-set policy against the window."""
    function = curve.function
    frame = _axes(
        (1.0, float(function.lifetime.min())),
        (max(float(function.parameter[-1]), 10.0), 1.3 * float(function.lifetime.max())),
        (f"window θ, {unit}", "g(θ)"),
        log=(True, True),
    )
    _draw(frame, function.parameter.astype(np.float64), function.lifetime, COLOURS[WORKING_SET])
    at = (float(figures.knee.parameter), figures.knee.lifetime)
    label = f"knee: θ = {figures.knee.parameter:,}"
    _mark(frame, at, COLOURS[WORKING_SET], label, hollow=False)
    return svg(frame.width, _HEIGHT, frame.parts, label="Lifetime against the window")


def space_time_chart(
    curves: Mapping[str, PolicyCurve], figures: Mapping[str, PolicyFigures]
) -> str:
    """The space-time product against the mean resident size."""
    lowest = min(float(one.space_time.min()) for one in curves.values())
    ends = [one.function.mean_pages for one in curves.values()]
    frame = _axes(
        (max(min(float(one[0]) for one in ends), 1.0), 0.7 * lowest),
        (max(float(one[-1]) for one in ends) * 1.05 + 1.0, 100.0 * lowest),
        ("mean resident size x, pages", "C / T, pages"),
        log=(True, True),
        width=1040.0,
    )
    for name, curve in curves.items():
        _draw(frame, curve.function.mean_pages, curve.space_time, COLOURS[name])
        least = figures[name].cheapest
        label = f"{name}, least: {short_count(least.space_time)} at x = {least.mean_pages:.1f}"
        at = (least.mean_pages, least.space_time)
        _mark(frame, at, COLOURS[name], label, hollow=False)
    return svg(frame.width, _HEIGHT, frame.parts, label="Space-time product")


def size_chart(series: SizeSeries, phases: tuple[PhaseFigures, ...], unit: str) -> str:
    """The working-set size over time; phases are shaded."""
    end = float(series.times[-1])
    frame = _axes(
        (0.0, 0.0),
        (end, 1.05 * max(float(series.pages.max()), 1.0)),
        (f"time, {unit}", "pages"),
        width=1040.0,
    )
    for phase in phases:
        left, right = frame.x(float(phase.begin)), frame.x(float(phase.end))
        label = title(f"phase of {phase.mean_pages:.0f} pages")
        shade = tag(
            "rect", label, x=left, y=20, width=right - left, height=_HEIGHT - _BELOW - 20,
            class_="burn",
        )  # fmt: skip
        frame.parts.insert(0, shade)
    _draw(
        frame,
        series.times.astype(np.float64),
        series.pages.astype(np.float64),
        COLOURS[WORKING_SET],
    )
    return svg(frame.width, _HEIGHT, frame.parts, label="Working-set size over time")


def distribution_chart(series: SizeSeries) -> str:
    """How often the working set has which size, with its modes."""
    found = size_distribution(series.pages)
    middles = (found.edges[:-1] + found.edges[1:]) / 2.0
    frame = _axes(
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
        _mark(frame, (mode.pages, height), "var(--ink)", label, hollow=True)
    return svg(frame.width, _HEIGHT, frame.parts, label="Distribution of working-set sizes")
