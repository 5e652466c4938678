"""The pictures of the experiments on swap assignment. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from stallward.evaluation.replication.swap.configurations import COMPUTINGS, SUBTASKS, WORKLOADS
from stallward.evaluation.replication.swap.result import ArmSummary, ConfigurationFigures
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

APPLICATION_COLOURS: Final = ("var(--c1)", "var(--c5)", "var(--c0)")
_ARM_COLOURS: Final = (
    "var(--ref0)",
    "var(--c3)",
    "var(--c4)",
    "var(--c5)",
    "var(--c1)",
    "var(--c2)",
)


def arm_colours(arms: Sequence[str]) -> dict[str, str]:
    """Name of an arm -> its colour."""
    return dict(zip(arms, _ARM_COLOURS, strict=False))


@dataclass(frozen=True, slots=True, kw_only=True)
class StackedBar:
    """The response times of some applications, one after the other."""

    label: str
    parts_s: Mapping[str, float]
    """Name of an application -> its response time."""
    total: str
    """The total as text."""


def response_chart(bars: Sequence[StackedBar], *, label: str) -> str:
    """Response times as bars: each application is a part, and the length is the total."""
    row, width, left = 44.0, 520.0, 128.0
    height = row * len(bars) + 40
    most = max((sum(bar.parts_s.values()) for bar in bars), default=1.0)
    x = Scale(low=0.0, high=1.25 * most, start=left, end=width - 12)
    parts = []
    for value in linear_ticks(0.0, x.high, 5):
        parts.append(line(x(value), 4, x(value), height - 32, class_="grid"))
        parts.append(text(x(value), height - 16, f"{value:g} s", class_="mid"))
    for i, bar in enumerate(bars):
        top, at = 8 + row * i, 0.0
        parts.append(text(left - 8, top + 19, bar.label, class_="name end"))
        for colour, (name, size) in zip(APPLICATION_COLOURS, bar.parts_s.items(), strict=False):
            rect = tag(
                "rect",
                title(f"{name}: {size:.2f} s"),
                x=x(at),
                y=top,
                width=max(x(at + size) - x(at) - 1, 1.0),
                height=28,
                rx=2,
                fill=colour,
            )
            parts.append(rect)
            at += size
        parts.append(text(x(at) + 6, top + 19, bar.total, class_="value"))
    return svg(width, height, parts, label=label)


def latency_panels(
    configurations: Mapping[str, ConfigurationFigures], colours: Mapping[str, str]
) -> dict[str, str]:
    """The lengthened latency against the sub-tasks, a picture for each workload and computing."""
    values = [
        arm.lengthened.value
        for one in configurations.values()
        for arm in one.arms.values()
        if arm.lengthened.value
    ]
    low, high = (0.7 * min(values), 1.4 * max(values)) if values else (0.1, 10.0)
    return {
        f"{workload} workload, {computing} computing": _panel(
            {
                subtasks: configurations[name]
                for subtasks in SUBTASKS
                if (name := f"{workload}-{computing}-{subtasks}") in configurations
            },
            colours,
            max(low, 1e-3),
            high,
        )
        for workload in WORKLOADS
        for computing in COMPUTINGS
    }


def _panel(
    by_subtasks: Mapping[int, ConfigurationFigures],
    colours: Mapping[str, str],
    low: float,
    high: float,
) -> str:
    width, height = 500.0, 290.0
    y = Scale(low=low, high=high, start=height - 46, end=10, warp=log10)
    step = (width - 76) / max(len(SUBTASKS) - 1, 1)
    at = {subtasks: 54 + step * i for i, subtasks in enumerate(SUBTASKS)}
    parts = [line(46, height - 46, width - 14, height - 46, class_="axis")]
    for value in log_ticks(low, high):
        parts.append(line(46, y(value), width - 14, y(value), class_="grid"))
        parts.append(text(40, y(value) + 4, f"{value:g}", class_="end"))
    parts += [text(x, height - 28, str(n), class_="mid") for n, x in at.items()]
    parts.append(text(width / 2, height - 8, "sub-tasks of each application", class_="mid"))
    for number, (arm, colour) in enumerate(colours.items()):
        shift = 3.0 * (number - len(colours) / 2)
        known = {
            n: one.arms[arm].lengthened
            for n, one in by_subtasks.items()
            if one.arms[arm].lengthened.value
        }
        xs = np.array([at[n] + shift for n in known])
        ys = np.array([y(figure.value or low) for figure in known.values()])
        if xs.size:
            parts.append(polyline(xs, ys, stroke=colour, stroke_width=2))
        for x, (n, figure) in zip(xs, known.items(), strict=True):
            parts.append(_point(float(x), y, figure, colour, f"{arm}, {n} sub-tasks"))
    return svg(width, height, parts, label="Lengthened latency against the number of sub-tasks")


def _point(x: float, y: Scale, figure: Interval, colour: str, name: str) -> str:
    value = figure.value or y.low
    whisker = ""
    if figure.low is not None and figure.high is not None:
        whisker = line(x, y(max(figure.low, y.low)), x, y(figure.high), stroke=colour)
    circle = tag("circle", title(f"{name}: {value:.2f}"), cx=x, cy=y(value), r=3.5, fill=colour)
    return tag("g", whisker, circle)


def gain_chart(
    summaries: Mapping[str, ArmSummary],
    colours: Mapping[str, str],
    theirs: Mapping[str, float],
    *,
    label: str,
) -> str:
    """How much lower the total is with each arm, in the mean over all configurations and at most.

    Args:
        summaries: Name of an arm -> its summary.
        colours: Name of an arm -> its colour.
        theirs: Name of an arm -> the most that the document states for it.
        label: What the picture shows.
    """
    row, width, left = 40.0, 760.0, 128.0
    height = row * len(summaries) + 40
    ends = [end for one in summaries.values() for end in (one.lower.low, one.lower.value) if end]
    low = min(0.0, *ends, 0.0)
    x = Scale(low=1.05 * low, high=0.8, start=left, end=width - 16)
    parts = []
    for value in linear_ticks(x.low, x.high, 8):
        parts.append(line(x(value), 4, x(value), height - 32, class_="grid"))
        parts.append(text(x(value), height - 16, f"{100 * value:.0f} %", class_="mid"))
    parts.append(line(x(0.0), 4, x(0.0), height - 32, class_="axis"))
    for i, (arm, one) in enumerate(summaries.items()):
        middle = 22 + row * i
        parts.append(text(left - 8, middle + 5, arm, class_="name end"))
        lower = one.lower.value
        if lower is not None:
            start, end = sorted((x(0.0), x(lower)))
            parts.append(
                tag(
                    "rect",
                    title(f"{arm}: {100 * lower:.0f} % lower in the mean"),
                    x=start,
                    y=middle - 10,
                    width=max(end - start, 1.0),
                    height=20,
                    rx=2,
                    fill=colours[arm],
                )
            )
        if one.lower.low is not None and one.lower.high is not None:
            ink = {"stroke": "var(--ink)", "stroke_width": 1.6}
            parts.append(line(x(one.lower.low), middle, x(one.lower.high), middle, **ink))
        if one.most_lower is not None:
            circle = tag(
                "circle",
                title(f"{arm}: at most {100 * one.most_lower:.0f} %, in {one.most_lower_in}"),
                cx=x(one.most_lower),
                cy=middle,
                r=5,
                fill="var(--card)",
                stroke=colours[arm],
                stroke_width=2.5,
            )
            parts.append(circle)
        if arm in theirs:
            at = x(theirs[arm])
            parts.append(line(at, middle - 16, at, middle + 16, class_="slo"))
            parts.append(text(at + 5, middle - 11, "document, at most"))
    return svg(width, height, parts, label=label)
