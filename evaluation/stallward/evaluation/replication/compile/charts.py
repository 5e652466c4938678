"""The pictures of the compile sweep. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from stallward.evaluation.replication.compile.result import PowerFit, SizeFigures
from stallward.evaluation.replication.compile.steps import UNPATCHED
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

UNPATCHED_COLOUR: Final = "var(--ref0)"
ARM_COLOUR: Final = "var(--c1)"
FIT_COLOUR: Final = "var(--c5)"
_WIDTH, _HEIGHT = 560.0, 320.0
_WIDE: Final = 1040.0
"""For a picture that has the page's width to itself."""


def time_chart(sizes: Sequence[SizeFigures], fit: PowerFit | None, *, label: str) -> str:
    """How long the unpatched kernel takes in how much memory, and the fit: the thesis's 5.1."""
    mib = np.array([float(one.zone_mib) for one in sizes for _ in one.arms[UNPATCHED].seconds])
    seconds = np.array([second for one in sizes for second in one.arms[UNPATCHED].seconds])
    x = Scale(low=0.95 * mib.min(), high=1.05 * mib.max(), start=60, end=_WIDE - 14, warp=log10)
    y = Scale(low=0.0, high=1.1 * seconds.max(), start=_HEIGHT - 44, end=10)
    parts = [*_across(y, _WIDE), *_sizes(sizes, x)]
    if fit is not None:
        at = np.geomspace(mib.min(), mib.max(), 120)
        curve = np.clip(fit.k / at**fit.power + fit.c_s, 0.0, y.high)
        parts.append(
            polyline(
                np.array([x(one) for one in at]),
                np.array([y(one) for one in curve]),
                stroke=FIT_COLOUR,
                stroke_width=2,
            )
        )
    parts.append(
        dots(
            np.array([x(one) for one in mib]),
            np.array([y(one) for one in seconds]),
            3,
            stroke=UNPATCHED_COLOUR,
        )
    )
    return svg(_WIDE, _HEIGHT, parts, label=label)


def box_chart(sizes: Sequence[SizeFigures], arm: str, *, label: str) -> str:
    """Box plots of an arm beside the unpatched kernel, at every size of memory."""
    seconds = [
        second for one in sizes for name in (UNPATCHED, arm) for second in one.arms[name].seconds
    ]
    y = Scale(
        low=0.9 * min(seconds),
        high=1.15 * max(seconds),
        start=_HEIGHT - 44,
        end=10,
        warp=log10,
    )
    step = (_WIDTH - 74) / len(sizes)
    parts = _across(y, _WIDTH, log=True)
    for i, one in enumerate(sizes):
        middle = 60 + step * (i + 0.5)
        parts.append(text(middle, _HEIGHT - 24, f"{one.zone_mib}", class_="mid"))
        width = min(0.3 * step, 22.0)
        for offset, name, colour in (
            (-0.55, UNPATCHED, UNPATCHED_COLOUR),
            (0.55, arm, ARM_COLOUR),
        ):
            parts += _box(
                one.arms[name].seconds, middle + offset * width * 1.4, width, y, colour, name
            )
    parts.append(text(_WIDTH / 2, _HEIGHT - 6, "memory, MiB", class_="mid"))
    return svg(_WIDTH, _HEIGHT, parts, label=label)


def _box(
    values: Sequence[float], at: float, width: float, y: Scale, colour: str, name: str
) -> list[str]:
    """A box from the 25th to the 75th percentile with the median, and lines to both extremes."""
    low, quarter, middle, three, high = np.percentile(values, [0, 25, 50, 75, 100])
    box = tag(
        "rect",
        title(f"{name}: {middle:.1f} s ({low:.1f} to {high:.1f})"),
        x=at - width / 2,
        y=y(three),
        width=width,
        height=max(y(quarter) - y(three), 1.0),
        fill=colour,
        fill_opacity=0.35,
        stroke=colour,
    )
    whisker = line(at, y(low), at, y(high), stroke=colour)
    median = line(
        at - width / 2, y(middle), at + width / 2, y(middle), stroke=colour, stroke_width=3
    )
    return [whisker, box, median]


def _across(y: Scale, width: float, *, log: bool = False) -> list[str]:
    parts = []
    for value in log_ticks(y.low, y.high) if log else linear_ticks(0.0, y.high, 5):
        parts.append(line(60, y(value), width - 14, y(value), class_="grid"))
        parts.append(text(54, y(value) + 4, f"{value:g} s", class_="end"))
    return parts


def _sizes(sizes: Sequence[SizeFigures], x: Scale) -> list[str]:
    labels = [
        text(x(one.zone_mib), _HEIGHT - 24, f"{one.zone_mib}", class_="mid") for one in sizes
    ]
    return [*labels, text((x.start + x.end) / 2, _HEIGHT - 6, "memory, MiB", class_="mid")]


def colours(arm: str) -> Mapping[str, str]:
    """What a box chart draws -> its colour."""
    return {UNPATCHED: UNPATCHED_COLOUR, arm: ARM_COLOUR}
