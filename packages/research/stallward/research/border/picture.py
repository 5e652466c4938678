"""The picture of a border: what each level costs the application and gives the background. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from stallward.evaluation.report.charts import COLOURS
from stallward.evaluation.report.drawing import axes_in, figure_of, hue, rule, svg_of
from stallward.evaluation.report.page import standalone
from stallward.research.border.levels import LevelFigures

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_GAP: Final = 0.5
"""The distance between loans and other levels, in the distance between two loans."""


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
    picture = figure_of(960.0, 350.0)
    picture.set_facecolor(hue("var(--card)"))
    title = f"{scenario}: loans of the application's memory"
    picture.text(
        0.06, 0.94, title, fontsize=15, weight="bold", color=hue("var(--ink)"), parse_math=False
    )
    latencies = {
        "p99": [level.p99_ms for level in figures],
        "p95": [level.p95_ms for level in figures],
    }
    _panel(picture, 0, "Latency, ms", figures, latencies, mark=target_ms)
    work = {
        name: _over_most([level.work_per_s[index] for level in figures])
        for index, name in enumerate(groups)
    }
    _panel(picture, 1, "Work, share of the most", figures, work, linear=True)
    swap = {
        "out": [level.swap_out_pages_per_s for level in figures],
        "in": [level.swap_in_pages_per_s for level in figures],
    }
    _panel(picture, 2, "Swap traffic, pages/s", figures, swap)
    label = f"Latency, work and swap traffic of {scenario} at each level of the border"
    return standalone(svg_of(picture, label)) + "\n"


def _over_most(values: Sequence[float]) -> list[float]:
    most = max(values)
    return [value / most if most > 0.0 else float("nan") for value in values]


def _panel(
    picture: Figure,
    index: int,
    title: str,
    figures: Sequence[LevelFigures],
    lines: Mapping[str, Sequence[float]],
    *,
    mark: float | None = None,
    linear: bool = False,
) -> None:
    loans = np.array([level.label.endswith("%") for level in figures])
    places = np.cumsum([0.0, *(1.0 + _GAP * (a != b) for a, b in pairwise(loans))])
    known = [v for values in lines.values() for v in values if np.isfinite(v)]
    low, high = _ends([*known, *([] if mark is None else [mark])], linear=linear)
    drawn = axes_in(
        picture,
        (0.06 + index / 3, 0.24, 0.26, 0.5),
        (-0.3, low),
        (max(places[-1], 1.0) + 0.3, high),
        ("lent, % of its demand", ""),
        log=(False, not linear),
    )
    drawn.set_title(title, fontsize=12, loc="left", y=1.16)
    drawn.set_xticks(places, [level.label.removesuffix(" %") for level in figures])
    drawn.grid(visible=False, axis="x")
    for word, lent in zip(drawn.get_xticklabels(), loans, strict=True):
        if not lent:
            word.set(rotation=40, rotation_mode="anchor", horizontalalignment="right")
    if mark is not None:
        rule(drawn, "target", y=mark)
    for number, (name, values) in enumerate(lines.items()):
        colour = f"var(--c{number % COLOURS})"
        heights = np.clip(np.array(values, dtype=np.float64), low, high)
        joined = np.isfinite(heights) & loans
        drawn.plot(places[joined], heights[joined], color=hue(colour), linewidth=2)
        drawn.plot(places, heights, ".", color=hue(colour), markersize=10, label=name)
    drawn.legend(
        loc="lower left", bbox_to_anchor=(0.0, 0.98), ncols=len(lines), frameon=False,
        fontsize=12, borderaxespad=0.0, handletextpad=0.2, columnspacing=1.0,
    )  # fmt: skip


def _ends(values: Sequence[float], *, linear: bool) -> tuple[float, float]:
    """The lowest and the highest value that an axis has to show."""
    high = max([*values, 1e-3])
    if linear:
        return 0.0, 1.08 * high
    low = min([*(value for value in values if value > 0.0), high])
    return max(0.8 * low, high / 1e4), 1.25 * high
