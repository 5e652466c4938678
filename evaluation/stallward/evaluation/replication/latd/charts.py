"""The pictures of the experiments of the latd thesis. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.evaluation.replication.latd.result import MemorySeries, ScenarioFigures, SweepPoint
from stallward.evaluation.replication.latd.workload import MIB, ZONE_MIB
from stallward.evaluation.report.svg import (
    Scale,
    dots,
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
from stallward.evaluation.results.interval import Interval

Array = NDArray[np.float64]
MEMORY_COLOURS: Final = {
    "zone in use": "var(--ref0)",
    "detector": "var(--c1)",
    "hog": "var(--c0)",
    "page cache": "var(--c2)",
}
"""What a picture of memory draws -> its colour."""
_PANEL_WIDTH: Final = 500.0
_PANEL_HEIGHT: Final = 210.0
_LEFT: Final = 52.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BesideRow:
    """A figure of the thesis and ours."""

    label: str
    colour: str
    ours: Interval
    theirs: float | None


def beside_chart(rows: Sequence[BesideRow], *, unit: str, log: bool, label: str) -> str:
    """Figures of the thesis (hollow) beside ours (filled, with 95 % intervals)."""
    row, width, left = 34.0, 500.0, 96.0
    height = row * len(rows) + 40
    low, high = _range([one.ours for one in rows], [one.theirs for one in rows])
    x = Scale(
        low=0.8 * low if log else 0.0,
        high=(1.4 if log else 1.1) * high,
        start=left,
        end=width - 16,
        warp=log10 if log else np.asarray,
    )
    ticks = log_ticks(x.low, x.high) if log else linear_ticks(0.0, x.high, 5)
    parts = [line(left, height - 34, width - 16, height - 34, class_="axis")]
    for value in ticks:
        parts.append(line(x(value), 4, x(value), height - 34, class_="grid"))
        parts.append(text(x(value), height - 18, f"{value:g}{unit}", class_="mid"))
    for i, one in enumerate(rows):
        middle = 20 + row * i
        parts.append(text(left - 8, middle + 4, one.label, class_="name end"))
        parts.append(_ours(one, x, middle, unit))
        if one.theirs is not None:
            circle = tag(
                "circle",
                title(f"{one.label}, thesis: {one.theirs:g}{unit}"),
                cx=x(one.theirs),
                cy=middle + 8,
                r=5,
                fill="var(--card)",
                stroke="var(--ink)",
                stroke_width=2,
            )
            parts.append(circle)
    return svg(width, height, parts, label=label)


def _range(
    figures: Sequence[Interval], beside: Sequence[float | None] = ()
) -> tuple[float, float]:
    """What an axis must show: all values, and intervals up to three times beyond them."""
    values = [value for value in (*(one.value for one in figures), *beside) if value] or [1.0]
    low, high = min(values), max(values)
    ends = [end for one in figures for end in (one.low, one.high) if end is not None]
    return max(min([low, *ends]), low / 3.0), min(max([high, *ends]), high * 3.0)


def _ours(row: BesideRow, x: Scale, y: float, unit: str) -> str:
    value = row.ours.value
    if value is None:
        return ""
    whisker = ""
    if row.ours.low is not None and row.ours.high is not None:
        ink = {"stroke": row.colour, "stroke_width": 2}
        whisker = line(x(row.ours.low), y - 4, x(row.ours.high), y - 4, **ink)
    tooltip = title(f"{row.label}, here: {value:.3g}{unit}")
    return tag("g", whisker, tag("circle", tooltip, cx=x(value), cy=y - 4, r=5, fill=row.colour))


def time_panel(found: ScenarioFigures, colour: str, low_ms: float, high_ms: float) -> str:
    """The latency of each image of one run against the time at which it was asked for."""
    request_s = np.array(found.request_s)
    latency_ms = np.array(found.latency_ms[: request_s.size])
    last_s = float(request_s.max()) if request_s.size else 1.0
    x = Scale(low=0.0, high=last_s, start=_LEFT, end=_PANEL_WIDTH - 10)
    y = _log_scale(low_ms, high_ms)
    parts = _log_grid(y)
    parts += [
        text(x(value), _PANEL_HEIGHT - 10, f"{value:g} s", class_="mid")
        for value in linear_ticks(0.0, last_s, 5)
    ]
    parts.append(dots(x.many(request_s), y.many(latency_ms), 1.8, stroke=colour, opacity=0.75))
    return svg(_PANEL_WIDTH, _PANEL_HEIGHT, parts, label="Latency over time in ms")


def _log_scale(low: float, high: float) -> Scale:
    return Scale(low=low, high=high, start=_PANEL_HEIGHT - 28, end=10, warp=log10)


def _log_grid(y: Scale) -> list[str]:
    parts = []
    for value in log_ticks(y.low, y.high):
        parts.append(line(_LEFT, y(value), _PANEL_WIDTH - 10, y(value), class_="grid"))
        parts.append(text(_LEFT - 6, y(value) + 4, f"{value:g}", class_="end"))
    parts.append(text(0, 10, "ms"))
    return parts


def memory_panel(memory: MemorySeries) -> str:
    """Resident sets and page cache against the images that were asked for."""
    last = max(memory.images, default=1)
    x = Scale(low=0.0, high=float(max(last, 1)), start=_LEFT, end=_PANEL_WIDTH - 10)
    y = Scale(low=0.0, high=1.06 * ZONE_MIB, start=_PANEL_HEIGHT - 28, end=8)
    parts = []
    for value in linear_ticks(0.0, ZONE_MIB, 4):
        parts.append(line(_LEFT, y(value), _PANEL_WIDTH - 10, y(value), class_="grid"))
        parts.append(text(_LEFT - 6, y(value) + 4, f"{value:g}", class_="end"))
    parts.append(text(0, 8, "MiB"))
    parts.append(line(_LEFT, y(ZONE_MIB), _PANEL_WIDTH - 10, y(ZONE_MIB), class_="rule"))
    parts += [
        text(x(value), _PANEL_HEIGHT - 10, f"{value:g}", class_="mid")
        for value in linear_ticks(0.0, x.high, 5)
    ]
    images = np.array(memory.images, dtype=np.float64)
    series = (memory.used_bytes, memory.detector_bytes, memory.hog_bytes, memory.cache_bytes)
    for colour, values in zip(MEMORY_COLOURS.values(), series, strict=True):
        if images.size:
            mib = np.array(values) / MIB
            parts.append(polyline(x.many(images), y.many(mib), stroke=colour, stroke_width=2))
    return svg(_PANEL_WIDTH, _PANEL_HEIGHT, parts, label="Memory over images in MiB")


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepLine:
    """One line of a sweep."""

    label: str
    colour: str
    points: Mapping[float, Interval]
    """Value -> the latency."""


def sweep_line(
    label: str, colour: str, points: Sequence[SweepPoint], of: Callable[[SweepPoint], Interval]
) -> SweepLine:
    """One line of a sweep, from its points."""
    return SweepLine(
        label=label, colour=colour, points={point.value: of(point) for point in points}
    )


def sweep_chart(
    lines: Sequence[SweepLine], *, axis: str, share: bool, marked: float, note: str, label: str
) -> str:
    """Latencies against a value that is swept, with 95 % intervals.

    Args:
        lines: What is drawn.
        axis: What is swept.
        share: Whether values are shares, which are written in per cent.
        marked: The value that the thesis names.
        note: What it says of that.
        label: What the picture shows.
    """
    width, height = 760.0, 300.0
    values = sorted({value for one in lines for value in one.points})
    low, high = _range([figure for one in lines for figure in one.points.values()])
    y = Scale(low=0.7 * low, high=1.5 * high, start=height - 48, end=10, warp=log10)
    step = (width - 110) / max(len(values) - 1, 1)
    at = {value: 72 + step * i for i, value in enumerate(values)}
    parts = [line(52, height - 48, width - 14, height - 48, class_="axis")]
    for value in log_ticks(y.low, y.high):
        parts.append(line(52, y(value), width - 14, y(value), class_="grid"))
        parts.append(text(46, y(value) + 4, f"{value:g}", class_="end"))
    for value, x in at.items():
        written = f"{100 * value:.0f} %" if share else f"{value:g}"
        parts.append(text(x, height - 30, written, class_="mid"))
    parts.append(text(width / 2, height - 8, axis, class_="mid"))
    parts.append(text(0, 10, "ms"))
    if marked in at:
        parts.append(line(at[marked], 10, at[marked], height - 48, class_="slo"))
        parts.append(text(at[marked] - 6, 20, note, class_="end"))
    for number, one in enumerate(lines):
        shift = 4.0 * (number - (len(lines) - 1) / 2)
        parts.append(_sweep_line(one, at, shift, y))
    return svg(width, height, parts, label=label)


def _sweep_line(one: SweepLine, at: Mapping[float, float], shift: float, y: Scale) -> str:
    known = {value: figure for value, figure in one.points.items() if figure.value}
    xs = np.array([at[value] + shift for value in known])
    ys = np.array([y(figure.value or y.low) for figure in known.values()])
    if not xs.size:
        return ""
    parts = [polyline(xs, ys, stroke=one.colour, stroke_width=2)]
    for x, height, (value, figure) in zip(xs, ys, known.items(), strict=True):
        if figure.low is not None and figure.high is not None:
            ink = {"stroke": one.colour, "stroke_width": 1.4}
            parts.append(line(float(x), y(figure.low), float(x), y(figure.high), **ink))
        tooltip = title(f"{one.label} at {value:g}: {figure.value:.3g} ms")
        parts.append(tag("circle", tooltip, cx=float(x), cy=float(height), r=4, fill=one.colour))
    return tag("g", *parts)
