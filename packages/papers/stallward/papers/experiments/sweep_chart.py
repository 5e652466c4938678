"""Latencies against a value that is swept, as a picture. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stallward.evaluation.report.svg import (
    Scale,
    line,
    log10,
    log_ticks,
    polyline,
    svg,
    tag,
    text,
    title,
)
from stallward.evaluation.results.interval import Interval
from stallward.papers.experiments.beside_chart import shown_range


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
