"""The pictures of the experiments of the latd thesis. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.evaluation.replication.latd.result import MemorySeries, ScenarioFigures, SweepPoint
from stallward.evaluation.replication.latd.workload import MIB, ZONE_MIB
from stallward.evaluation.replication.sweep_chart import SweepLine
from stallward.evaluation.report.svg import (
    Scale,
    dots,
    line,
    linear_ticks,
    log10,
    log_ticks,
    polyline,
    svg,
    text,
)
from stallward.evaluation.results.interval import Interval

Array = NDArray[np.float64]
MEMORY_COLOURS: Final = {
    "zone in use": "var(--ref0)",
    "detector": "var(--c1)",
    "hog": "var(--c0)",
    "page cache": "var(--c2)",
}
"""What a picture of memory draws -> its colour."""
_PANEL_WIDTH: Final = 500.0
_PANEL_HEIGHT: Final = 210.0
_LEFT: Final = 52.0


def time_panel(found: ScenarioFigures, colour: str, low_ms: float, high_ms: float) -> str:
    """The latency of each image of one run against the time at which it was asked for."""
    request_s = np.array(found.request_s)
    latency_ms = np.array(found.latency_ms[: request_s.size])
    last_s = float(request_s.max()) if request_s.size else 1.0
    x = Scale(low=0.0, high=last_s, start=_LEFT, end=_PANEL_WIDTH - 10)
    y = _log_scale(low_ms, high_ms)
    parts = _log_grid(y)
    parts += [
        text(x(value), _PANEL_HEIGHT - 10, f"{value:g} s", class_="mid")
        for value in linear_ticks(0.0, last_s, 5)
    ]
    parts.append(dots(x.many(request_s), y.many(latency_ms), 1.8, stroke=colour, opacity=0.75))
    return svg(_PANEL_WIDTH, _PANEL_HEIGHT, parts, label="Latency over time in ms")


def _log_scale(low: float, high: float) -> Scale:
    return Scale(low=low, high=high, start=_PANEL_HEIGHT - 28, end=10, warp=log10)


def _log_grid(y: Scale) -> list[str]:
    parts = []
    for value in log_ticks(y.low, y.high):
        parts.append(line(_LEFT, y(value), _PANEL_WIDTH - 10, y(value), class_="grid"))
        parts.append(text(_LEFT - 6, y(value) + 4, f"{value:g}", class_="end"))
    parts.append(text(0, 10, "ms"))
    return parts


def memory_panel(memory: MemorySeries) -> str:
    """Resident sets and page cache against the images that were asked for."""
    last = max(memory.images, default=1)
    x = Scale(low=0.0, high=float(max(last, 1)), start=_LEFT, end=_PANEL_WIDTH - 10)
    y = Scale(low=0.0, high=1.06 * ZONE_MIB, start=_PANEL_HEIGHT - 28, end=8)
    parts = []
    for value in linear_ticks(0.0, ZONE_MIB, 4):
        parts.append(line(_LEFT, y(value), _PANEL_WIDTH - 10, y(value), class_="grid"))
        parts.append(text(_LEFT - 6, y(value) + 4, f"{value:g}", class_="end"))
    parts.append(text(0, 8, "MiB"))
    parts.append(line(_LEFT, y(ZONE_MIB), _PANEL_WIDTH - 10, y(ZONE_MIB), class_="rule"))
    parts += [
        text(x(value), _PANEL_HEIGHT - 10, f"{value:g}", class_="mid")
        for value in linear_ticks(0.0, x.high, 5)
    ]
    images = np.array(memory.images, dtype=np.float64)
    series = (memory.used_bytes, memory.detector_bytes, memory.hog_bytes, memory.cache_bytes)
    for colour, values in zip(MEMORY_COLOURS.values(), series, strict=True):
        if images.size:
            mib = np.array(values) / MIB
            parts.append(polyline(x.many(images), y.many(mib), stroke=colour, stroke_width=2))
    return svg(_PANEL_WIDTH, _PANEL_HEIGHT, parts, label="Memory over images in MiB")


def sweep_line(
    label: str, colour: str, points: Sequence[SweepPoint], of: Callable[[SweepPoint], Interval]
) -> SweepLine:
    """One line of a sweep, from its points."""
    return SweepLine(
        label=label, colour=colour, points={point.value: of(point) for point in points}
    )
