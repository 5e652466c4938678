"""The picture of a border: what each level costs the application and gives the background. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from stallward.evaluation.border.levels import LevelFigures
from stallward.evaluation.report.svg import (
    STYLE,
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
)

_WIDTH: Final = 960.0
_HEIGHT: Final = 330.0
_PANEL: Final = 250.0
_LEFTS: Final = (56.0, 376.0, 696.0)
_TOP: Final = 70.0
_BOTTOM: Final = 270.0
_COLOURS: Final = ("#1f5fbf", "#b3261e", "#c9741a", "#2e7d4f", "#7a4fb5", "#66717d")


def draw(
    scenario: str,
    figures: Sequence[LevelFigures],
    ratios: Sequence[float],
    groups: Sequence[str],
    target_ms: float,
) -> str:
    """Three panels: latency, work and swap traffic at each level.

    Args:
        scenario: The name of the scenario.
        figures: The levels, in order.
        ratios: The work of all groups at each level, over that at the first one.
        groups: The names of the background groups.
        target_ms: The latency target.
    """
    parts = [tag("style", STYLE), tag("rect", width=_WIDTH, height=_HEIGHT, rx=8, fill="#ffffff")]
    parts.append(
        text(_LEFTS[0], 24.0, f"{scenario}: loans of the application's memory", class_="h")
    )
    latencies = {
        "p99": [level.p99_ms for level in figures],
        "p95": [level.p95_ms for level in figures],
    }
    parts += _panel(0, "Latency, ms", figures, latencies, mark=target_ms)
    work = {
        name: _over_first([level.work_per_s[index] for level in figures])
        for index, name in enumerate(groups)
    }
    if len(groups) > 1:
        work = {"all groups": list(ratios), **work}
    parts += _panel(1, "Work, over that at the first level", figures, work, mark=1.0, linear=True)
    swap = {
        "out": [level.swap_out_pages_per_s for level in figures],
        "in": [level.swap_in_pages_per_s for level in figures],
    }
    parts += _panel(2, "Swap traffic, pages/s", figures, swap)
    label = f"Latency, work and swap traffic of {scenario} at each level of the border"
    return svg(_WIDTH, _HEIGHT, parts, label=label) + "\n"


def _over_first(values: Sequence[float]) -> list[float]:
    return [value / values[0] if values[0] > 0.0 else float("nan") for value in values]


def _panel(
    index: int,
    title: str,
    figures: Sequence[LevelFigures],
    lines: dict[str, list[float]],
    *,
    mark: float | None = None,
    linear: bool = False,
) -> list[str]:
    left = _LEFTS[index]
    right = left + _PANEL
    x = Scale(low=0.0, high=max(len(figures) - 1.0, 1.0), start=left + 8.0, end=right - 8.0)
    known = np.array([v for values in lines.values() for v in values if np.isfinite(v)])
    y, ticks = _y_scale(known, mark, linear=linear)
    parts = [text(left, 44.0, title)]
    for value in ticks:
        parts.append(line(left, y(value), right, y(value), stroke="#e6e9ed"))
        parts.append(text(left - 6.0, y(value) + 4.0, f"{value:g}", class_="s e"))
    if mark is not None:
        parts.append(line(left, y(mark), right, y(mark), stroke="#66717d", stroke_dasharray="5 4"))
    for place, level in enumerate(figures):
        label = level.label.removesuffix(" %")
        parts.append(text(x(place), _BOTTOM + 18.0, label, class_="s m"))
    parts.append(text((left + right) / 2.0, _BOTTOM + 36.0, "lent, % of its demand", class_="s m"))
    for key, (name, values) in enumerate(lines.items()):
        colour = _COLOURS[key % len(_COLOURS)]
        numbers = np.array(values, dtype=np.float64)
        there = np.isfinite(numbers)
        points = x.many(np.arange(len(values), dtype=np.float64)[there]), y.many(numbers[there])
        parts.append(polyline(*points, stroke=colour, stroke_width=2.0))
        parts.append(dots(*points, 3.2, stroke=colour))
        parts.append(text(left + 62.0 * key, 60.0, name, class_="s", style=f"fill:{colour}"))
    return parts


def _y_scale(known: np.ndarray, mark: float | None, *, linear: bool) -> tuple[Scale, list[float]]:
    marks = [] if mark is None else [mark]
    high = float(max([*known, *marks, 1e-3]))
    if linear:
        y = Scale(low=0.0, high=1.08 * high, start=_BOTTOM, end=_TOP)
        return y, linear_ticks(0.0, y.high, 5)
    low = float(min([*(value for value in known if value > 0.0), *marks, high]))
    y = Scale(
        low=max(0.8 * low, high / 1e4), high=1.25 * high, start=_BOTTOM, end=_TOP, warp=log10
    )
    return y, log_ticks(y.low, y.high)
