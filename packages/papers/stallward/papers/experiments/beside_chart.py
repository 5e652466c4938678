"""Figures of a document beside ours, as a picture. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stallward.evaluation.report.svg import (
    Scale,
    line,
    linear_ticks,
    log10,
    log_ticks,
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
