"""The picture of a border: what each level costs the application and gives the background. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

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
from stallward.research.border.levels import LevelFigures

_WIDTH: Final = 960.0
_HEIGHT: Final = 350.0
_PANEL: Final = 250.0
_LEFTS: Final = (56.0, 376.0, 696.0)
_TOP: Final = 76.0
_BOTTOM: Final = 276.0
_GAP: Final = 0.5
"""The distance between loans and other levels, in the distance between two loans."""
_COLOURS: Final = ("#1f5fbf", "#b3261e", "#c9741a", "#2e7d4f", "#7a4fb5", "#66717d")


def draw(
    scenario: str, figures: Sequence[LevelFigures], groups: Sequence[str], target_ms: float
) -> str:
    """Three panels: latency, work and swap traffic at each level.

    Loans are joined by a line; other levels have dots of their own.

    Args:
        scenario: The name of the scenario.
        figures: The levels, in order.
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
        name: _over_most([level.work_per_s[index] for level in figures])
        for index, name in enumerate(groups)
    }
    parts += _panel(1, "Work, share of the most", figures, work, linear=True)
    swap = {
        "out": [level.swap_out_pages_per_s for level in figures],
        "in": [level.swap_in_pages_per_s for level in figures],
    }
    parts += _panel(2, "Swap traffic, pages/s", figures, swap)
    label = f"Latency, work and swap traffic of {scenario} at each level of the border"
    return svg(_WIDTH, _HEIGHT, parts, label=label) + "\n"


def _over_most(values: Sequence[float]) -> list[float]:
    most = max(values)
    return [value / most if most > 0.0 else float("nan") for value in values]


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
    loans = np.array([level.label.endswith("%") for level in figures])
    places = np.cumsum([0.0, *(1.0 + _GAP * (a != b) for a, b in pairwise(loans))])
    x = Scale(low=0.0, high=max(places[-1], 1.0), start=left + 8.0, end=right - 8.0)
    known = np.array([v for values in lines.values() for v in values if np.isfinite(v)])
    y, ticks = _y_scale(known, mark, linear=linear)
    parts = [text(left, 46.0, title)]
    for value in ticks:
        parts.append(line(left, y(value), right, y(value), stroke="#e6e9ed"))
        parts.append(text(left - 6.0, y(value) + 4.0, f"{value:g}", class_="s e"))
    if mark is not None:
        parts.append(line(left, y(mark), right, y(mark), stroke="#66717d", stroke_dasharray="5 4"))
        parts.append(text(right, y(mark) - 4.0, "target", class_="s e"))
    for place, level, lent in zip(x.many(places), figures, loans, strict=True):
        at = _BOTTOM + 18.0
        if lent:
            parts.append(text(place, at, level.label.removesuffix(" %"), class_="s m"))
        else:
            turn = f"rotate(-40 {place + 4.0:.1f} {at:.1f})"
            parts.append(text(place + 4.0, at, level.label, class_="s e", transform=turn))
    middle = (left + x(places[loans][-1])) / 2.0 if loans.any() else left
    parts.append(text(middle, _BOTTOM + 38.0, "lent, % of its demand", class_="s m"))
    written = left
    for key, (name, values) in enumerate(lines.items()):
        colour = _COLOURS[key % len(_COLOURS)]
        numbers = np.array(values, dtype=np.float64)
        there = np.isfinite(numbers)
        joined = there & loans
        across, up = x.many(places), y.many(np.where(there, numbers, y.low))
        parts.append(polyline(across[joined], up[joined], stroke=colour, stroke_width=2.0))
        parts.append(dots(across[there], up[there], 3.2, stroke=colour))
        parts.append(text(written, 64.0, name, class_="s", style=f"fill:{colour}"))
        written += 8.0 * len(name) + 12.0
    return parts


def _y_scale(
    known: NDArray[np.float64], mark: float | None, *, linear: bool
) -> tuple[Scale, list[float]]:
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
