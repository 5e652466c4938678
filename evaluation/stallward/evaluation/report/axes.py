"""Axes of a chart, and curves and marks in them. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

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

HEIGHT: Final = 330.0
BELOW: Final = 46.0
"""The height of what is under the x axis."""
_POINTS: Final = 800
_LEFT: Final = 64.0

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Axes, and the scales of what is drawn in them."""

    x: Scale
    y: Scale
    parts: list[str]
    width: float
    height: float

    def svg(self, label: str) -> str:
        """The whole chart; ``label`` describes it for screen readers."""
        return svg(self.width, self.height, self.parts, label=label)


def short_count(value: float) -> str:
    """A count of things or of time in few characters: 1.5 M."""
    for size, name in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{name}"
    return f"{value:.3g}"


def _frame(x: Scale, y: Scale, names: tuple[str, str], width: float, height: float) -> Frame:
    bottom = height - BELOW
    parts = [
        line(_LEFT, bottom, width - 14, bottom, class_="axis"),
        text((_LEFT + width) / 2, height - 8, names[0], class_="mid"),
        text(4, 12, names[1]),
    ]
    for value in _ticks(x):
        parts.append(line(x(value), 20, x(value), bottom, class_="grid"))
        parts.append(text(x(value), bottom + 17, short_count(value), class_="mid"))
    for value in _ticks(y):
        parts.append(line(_LEFT, y(value), width - 14, y(value), class_="grid"))
        parts.append(text(_LEFT - 6, y(value) + 4, short_count(value), class_="end"))
    return Frame(x=x, y=y, parts=parts, width=width, height=height)


def _ticks(scale: Scale) -> list[float]:
    logarithmic = scale.warp is log10
    return (log_ticks if logarithmic else linear_ticks)(scale.low, scale.high)


def axes(
    low: tuple[float, float],
    high: tuple[float, float],
    names: tuple[str, str],
    *,
    log: tuple[bool, bool] = (False, False),
    width: float = 520.0,
    height: float = HEIGHT,
) -> Frame:
    """Axes from ``low`` to ``high``, each as (x, y), with ticks; ``names`` are what they show."""
    warps: list[Callable[[Array], Array]] = [log10 if one else np.asarray for one in log]
    x = Scale(low=low[0], high=high[0], start=_LEFT, end=width - 14, warp=warps[0])
    y = Scale(low=low[1], high=high[1], start=height - BELOW, end=20, warp=warps[1])
    return _frame(x, y, names, width, height)


def _thinned(x: Array, y: Array, pixels: Array) -> tuple[Array, Array]:
    """At most two points for each pixel, its lowest and its highest."""
    if x.size <= 2 * _POINTS:
        return x, y
    columns = np.floor(pixels).astype(np.int64)
    starts = np.flatnonzero(np.diff(columns, prepend=columns[0] - 1))
    lows, highs = np.minimum.reduceat(y, starts), np.maximum.reduceat(y, starts)
    return np.repeat(x[starts], 2), np.column_stack([lows, highs]).ravel()


def draw(frame: Frame, x: Array, y: Array, colour: str) -> None:
    """Draw a curve."""
    thin_x, thin_y = _thinned(x, y, frame.x.many(x))
    drawn = polyline(
        frame.x.many(thin_x),
        frame.y.many(thin_y),
        stroke=colour,
        stroke_width=1.8,
        stroke_linejoin="round",
    )
    frame.parts.append(drawn)


def mark(frame: Frame, at: tuple[float, float], colour: str, what: str, *, hollow: bool) -> None:
    """Draw a circle with a tooltip."""
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
