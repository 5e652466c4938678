"""The pictures of the pages: figures of a document beside ours, and latencies by a swept value. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stallward.evaluation.report.svg import (
    Scale,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class BesideRow:
    """A figure of the document and ours."""

    label: str
    colour: str
    ours: Interval
    theirs: float | None


def beside_chart(rows: Sequence[BesideRow], *, unit: str, log: bool, label: str) -> str:
    """Figures of the document (hollow) beside ours (filled, with 95 % intervals)."""
    row, width, left = 34.0, 500.0, 96.0
    height = row * len(rows) + 40
    low, high = shown_range([one.ours for one in rows], [one.theirs for one in rows])
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
                title(f"{one.label}, published: {one.theirs:g}{unit}"),
                cx=x(one.theirs),
                cy=middle + 8,
                r=5,
                fill="var(--card)",
                stroke="var(--ink)",
                stroke_width=2,
            )
            parts.append(circle)
    return svg(width, height, parts, label=label)


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


def shown_range(
    figures: Sequence[Interval], beside: Sequence[float | None] = ()
) -> tuple[float, float]:
    """What an axis must show: all values, and intervals up to three times beyond them."""
    values = [value for value in (*(one.value for one in figures), *beside) if value] or [1.0]
    low, high = min(values), max(values)
    ends = [end for one in figures for end in (one.low, one.high) if end is not None]
    return max(min([low, *ends]), low / 3.0), min(max([high, *ends]), high * 3.0)


# ---------- Latencies against a value that is swept


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepLine:
    """One line of a sweep."""

    label: str
    colour: str
    points: Mapping[float, Interval]
    """Value -> the latency."""


def sweep_chart(
    lines: Sequence[SweepLine],
    *,
    axis: str,
    share: bool,
    label: str,
    marked: float | None = None,
    note: str = "",
) -> str:
    """Latencies against a value that is swept, with 95 % intervals.

    Args:
        lines: What is drawn.
        axis: What is swept.
        share: Whether values are shares, which are written in per cent.
        label: What the picture shows.
        marked: The value that the document names, if any.
        note: What it says of that.
    """
    width, height = 760.0, 300.0
    values = sorted({value for one in lines for value in one.points})
    low, high = shown_range([figure for one in lines for figure in one.points.values()])
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
    if marked is not None and marked in at:
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
