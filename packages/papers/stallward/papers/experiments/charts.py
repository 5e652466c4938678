"""The pictures of the pages: figures of a document beside ours, and latencies by a swept value. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stallward.evaluation.report.drawing import axes, draw, mark, row_axes, rule, svg_of, whisker
from stallward.evaluation.results.interval import Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class BesideRow:
    """A figure of the document and ours."""

    label: str
    colour: str
    ours: Interval
    theirs: float | None


def beside_chart(shown: Sequence[BesideRow], *, unit: str, log: bool, label: str) -> str:
    """Figures of the document (hollow) beside ours (filled, with 95 % intervals)."""
    low, high = shown_range([one.ours for one in shown], [one.theirs for one in shown])
    drawn = row_axes(
        [one.label for one in shown],
        0.8 * low if log else 0.0,
        (1.4 if log else 1.1) * high,
        f"{{x:g}}{unit}",
        log=log,
    )
    for place, one in enumerate(shown):
        if one.theirs is not None:
            what = f"{one.label}, published: {one.theirs:g}{unit}"
            mark(drawn, (one.theirs, place + 0.25), "var(--ink)", what, hollow=True)
        if one.ours.value is not None:
            what = f"{one.label}, here: {one.ours.value:.3g}{unit}"
            whisker(drawn, place - 0.1, one.ours, one.colour, across=True)
            mark(drawn, (one.ours.value, place - 0.1), one.colour, what, hollow=False)
    return svg_of(drawn, label)


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
    label: str,
    share: bool = False,
    unit: str = "ms",
    values: Sequence[float] = (),
    ends: tuple[float, float] | None = None,
    width: float = 760.0,
    marked: float | None = None,
    note: str = "",
) -> str:
    """Figures against a value that is swept, with 95 % intervals.

    Args:
        lines: What is drawn.
        axis: What is swept.
        label: What the picture shows.
        share: Whether values are shares, which are written in per cent.
        unit: The unit of the figures.
        values: The values that the axis has; those of the lines if empty.
        ends: The lowest and the highest figure that the axis must show; those of the lines if
            ``None``.
        width: The width of the picture.
        marked: The value that the document names, if any.
        note: What it says of that.
    """
    values = sorted(values or {value for one in lines for value in one.points})
    low, high = ends or shown_range([figure for one in lines for figure in one.points.values()])
    at = {value: float(place) for place, value in enumerate(values)}
    drawn = axes(
        (-0.4, max(0.7 * low, 1e-3)),
        (max(len(values), 1) - 0.6, max(1.5 * high, 1e-2)),
        (axis, unit),
        log=(False, True),
        size=(width, 300.0),
    )
    written = [f"{100 * value:.0f} %" if share else f"{value:g}" for value in values]
    drawn.set_xticks(list(at.values()), written)
    drawn.grid(visible=False, axis="x")
    if marked is not None and marked in at:
        rule(drawn, note, x=at[marked])
    for number, one in enumerate(lines):
        shift = 0.03 * (number - (len(lines) - 1) / 2)
        points = {
            at[value] + shift: (value, figure)
            for value, figure in sorted(one.points.items())
            if figure.value
        }
        heights = np.array([figure.value for _, figure in points.values()], dtype=np.float64)
        draw(drawn, np.array(list(points)), heights, one.colour)
        for (x, (value, figure)), height in zip(points.items(), heights.tolist(), strict=True):
            what = f"{one.label} at {value:g}: {height:.3g} {unit}".rstrip()
            whisker(drawn, x, figure, one.colour)
            mark(drawn, (x, height), one.colour, what, hollow=False)
    return svg_of(drawn, label)
