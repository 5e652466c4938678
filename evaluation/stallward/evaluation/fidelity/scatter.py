"""Charts of a figure on the twin against the same figure live, as SVG. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

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
)
from stallward.evaluation.report.svg import title as hint
from stallward.evaluation.report.text import number

_SIZE: Final = 500.0
_LEFT: Final = 56.0
_BOTTOM: Final = _SIZE - 44.0
_BAND: Final = 0.15
"""The target of the median error; the band around the diagonal is this wide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """A figure of an arm, live and on the twin."""

    name: str
    """The scenario and the arm."""
    colour: str
    live: float
    twin: float


def latency_scatter(dots: Sequence[Dot], quantile: str) -> str:
    """A quantile of the latency on the twin against the one live, on logarithmic axes."""
    dots = [dot for dot in dots if dot.live and dot.twin]
    values = [value for dot in dots for value in (dot.live, dot.twin)] or [1.0, 10.0]
    low, high = min(values) / 1.3, max(values) * 1.3
    x = Scale(low=low, high=high, start=_LEFT, end=_SIZE - 12, warp=log10)
    y = Scale(low=low, high=high, start=_BOTTOM, end=12, warp=log10)
    factor = float(np.exp(_BAND))
    band = _band(x, y, [(low, low * factor), (high / factor, high)],
                 [(low * factor, low), (high, high / factor)])  # fmt: skip
    circles = [
        _circle(x, y, dot, f"live {number(dot.live, 'ms')} ms, twin {number(dot.twin, 'ms')} ms")
        for dot in dots
    ]
    label = f"{quantile} on the twin against {quantile} live"
    return _square(x, y, log_ticks(low, high), band, circles, label)


def work_scatter(dots: Sequence[Dot]) -> str:
    """Background work on the twin against background work live."""
    top = max([1.0, *(value for dot in dots for value in (dot.live, dot.twin))]) * 1.05
    x = Scale(low=0.0, high=top, start=_LEFT, end=_SIZE - 12)
    y = Scale(low=0.0, high=top, start=_BOTTOM, end=12)
    factor = float(np.exp(_BAND))
    band = _band(x, y, [(0.0, 0.0), (top / factor, top)], [(0.0, 0.0), (top, top / factor)])
    circles = [
        _circle(x, y, dot, f"live {number(dot.live, 'share')}, twin {number(dot.twin, 'share')}")
        for dot in dots
    ]
    ticks = linear_ticks(0.0, top, 5)
    return _square(x, y, ticks, band, circles, "background work on the twin against live")


def _circle(x: Scale, y: Scale, dot: Dot, figures: str) -> str:
    return tag(
        "circle",
        hint(f"{dot.name}: {figures}"),
        cx=x(dot.live),
        cy=y(dot.twin),
        r=5.5,
        fill=dot.colour,
        stroke="var(--card)",
        stroke_width=1.5,
    )


def _band(
    x: Scale, y: Scale, upper: list[tuple[float, float]], lower: list[tuple[float, float]]
) -> str:
    points = [(x(a), y(b)) for a, b in (*upper, *reversed(lower))]
    path = "M" + "L".join(f"{a:.1f},{b:.1f}" for a, b in points) + "Z"
    return tag("path", d=path, class_="burn")


def _square(
    x: Scale, y: Scale, ticks: Sequence[float], band: str, circles: Sequence[str], label: str
) -> str:
    grid = [band]
    for value in ticks:
        grid.append(line(x(value), 12, x(value), _BOTTOM, class_="grid"))
        grid.append(line(_LEFT, y(value), _SIZE - 12, y(value), class_="grid"))
        grid.append(text(x(value), _BOTTOM + 16, f"{value:g}", class_="mid"))
        grid.append(text(_LEFT - 6, y(value) + 4, f"{value:g}", class_="end"))
    grid.append(line(x(x.low), y(y.low), x(x.high), y(y.high), class_="rule"))
    grid.append(text((_LEFT + _SIZE) / 2, _SIZE - 10, "live", class_="mid"))
    turned = f"translate(12 {_SIZE / 2:.0f}) rotate(-90)"
    grid.append(text(0, 0, "twin", class_="mid", transform=turned))
    return svg(_SIZE, _SIZE, [*grid, *circles], label=label)
