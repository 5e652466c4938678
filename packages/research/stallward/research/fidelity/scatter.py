"""Charts of a figure on the twin against the same figure live, as SVG. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from stallward.evaluation.report.drawing import RULE, axes, hue, mark, svg_of
from stallward.evaluation.report.text import Kind, number

_SIZE: Final = 500.0
_BAND: Final = 0.15
"""The target of the median error; the band around the diagonal is this wide."""

SHADED: Final = "Every dot is an arm. In the shaded band the error is at most 15 %."


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
    label = f"{quantile} on the twin against {quantile} live"
    return _scatter(dots, min(values) / 1.3, max(values) * 1.3, "ms", label)


def work_scatter(dots: Sequence[Dot]) -> str:
    """Background work on the twin against background work live."""
    top = max([1.0, *(value for dot in dots for value in (dot.live, dot.twin))]) * 1.05
    return _scatter(dots, 0.0, top, "share", "background work on the twin against live")


def _scatter(dots: Sequence[Dot], low: float, high: float, unit: Kind, label: str) -> str:
    logarithmic = low > 0.0
    drawn = axes(
        (low, low),
        (high, high),
        ("live", "twin"),
        log=(logarithmic, logarithmic),
        size=(_SIZE, _SIZE),
    )
    factor = float(np.exp(_BAND))
    less, more = high / factor, low * factor
    corners = [(low, low), (low, more), (less, high), (high, high), (high, less), (more, low)]
    drawn.fill(*zip(*corners, strict=True), color=hue("var(--shade)"), zorder=0)
    drawn.plot([low, high], [low, high], **RULE)
    suffix = " ms" if unit == "ms" else ""
    for dot in dots:
        live, twin = (f"{number(value, unit)}{suffix}" for value in (dot.live, dot.twin))
        what = f"{dot.name}: live {live}, twin {twin}"
        mark(drawn, (dot.live, dot.twin), dot.colour, what, hollow=False)
    return svg_of(drawn, label)
