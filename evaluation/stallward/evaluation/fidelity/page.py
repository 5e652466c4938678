"""The page of ``stallward fidelity``: twin against live in charts, in one file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from stallward.evaluation.fidelity.heat_map import HeatMap, heat_map
from stallward.evaluation.fidelity.result import (
    ArmRow,
    FidelityResult,
    FidelitySummary,
    FidelityTable,
)
from stallward.evaluation.fidelity.table import fidelity_rows, mean_distances
from stallward.evaluation.report.charts import COLOURS
from stallward.evaluation.report.page import put_page, render_template
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
class ScenarioColour:
    """A scenario and the colour of its dots."""

    name: str
    colour: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of the page, about a group of arms."""

    title: str
    scenarios: tuple[ScenarioColour, ...]
    latency_chart: str
    work_chart: str
    distance_chart: str
    heat_map: HeatMap
    notes: tuple[str, ...]
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def write_page(result: FidelityResult, path: Path) -> None:
    """Write the page of a fidelity result."""
    put_page(path, render_page(result))


def render_page(result: FidelityResult) -> str:
    """The whole page. Pure."""
    parts = [_part(f"Twins {result.twins}", result.table)]
    if result.left_out_scenarios is not None:
        parts.append(_part("Scenarios left out of every fit", result.left_out_scenarios))
    return render_template(
        "fidelity.html.j2",
        arms=len(result.table.arms),
        twins=result.twins,
        headline=_headline(result.table.summary),
        parts=parts,
    )


def _headline(summary: FidelitySummary) -> str:
    error = summary.p95_error_median
    if error is None:
        return "No arm has a p95 both live and on the twin"
    return f"The median error of the twin's p95 is {100 * np.expm1(error):.0f} %"


def _part(title: str, table: FidelityTable) -> Part:
    names = dict.fromkeys(arm.scenario for arm in table.arms)
    colours = {name: f"var(--c{k % COLOURS})" for k, name in enumerate(names)}
    headers, rows, notes = fidelity_rows(table)
    return Part(
        title=title,
        scenarios=tuple(ScenarioColour(name=n, colour=c) for n, c in colours.items()),
        latency_chart=_latency_scatter(table.arms, colours),
        work_chart=_work_scatter(table.arms, colours),
        distance_chart=_distances(table.arms),
        heat_map=heat_map(table.arms),
        notes=tuple(notes),
        headers=headers,
        rows=tuple(rows),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Point:
    """A figure of an arm, live and on the twin."""

    arm: ArmRow
    live: float
    twin: float


def _latency_scatter(arms: Sequence[ArmRow], colours: Mapping[str, str]) -> str:
    """The p95 on the twin against the p95 live, on logarithmic axes."""
    points = [
        _Point(arm=arm, live=arm.live_ms.p95, twin=arm.twin_ms.p95)
        for arm in arms
        if arm.live_ms.p95 and arm.twin_ms.p95
    ]
    values = [value for point in points for value in (point.live, point.twin)] or [1.0, 10.0]
    low, high = min(values) / 1.3, max(values) * 1.3
    x = Scale(low=low, high=high, start=_LEFT, end=_SIZE - 12, warp=log10)
    y = Scale(low=low, high=high, start=_BOTTOM, end=12, warp=log10)
    dots = [
        _dot(
            x(point.live),
            y(point.twin),
            colours[point.arm.scenario],
            f"{point.arm.scenario} {point.arm.arm}: live {number(point.live, 'ms')} ms, "
            f"twin {number(point.twin, 'ms')} ms",
        )
        for point in points
    ]
    factor = float(np.exp(_BAND))
    band = _band(x, y, [(low, low * factor), (high / factor, high)],
                 [(low * factor, low), (high, high / factor)])  # fmt: skip
    return _square(x, y, log_ticks(low, high), band, dots, "p95 on the twin against p95 live")


def _work_scatter(arms: Sequence[ArmRow], colours: Mapping[str, str]) -> str:
    """Background work on the twin against background work live."""
    points = [
        _Point(arm=arm, live=arm.live_work, twin=arm.twin_work)
        for arm in arms
        if arm.live_work is not None and arm.twin_work is not None
    ]
    top = max([1.0, *(value for point in points for value in (point.live, point.twin))]) * 1.05
    x = Scale(low=0.0, high=top, start=_LEFT, end=_SIZE - 12)
    y = Scale(low=0.0, high=top, start=_BOTTOM, end=12)
    dots = [
        _dot(
            x(point.live),
            y(point.twin),
            colours[point.arm.scenario],
            f"{point.arm.scenario} {point.arm.arm}: live {number(point.live, 'share')}, "
            f"twin {number(point.twin, 'share')}",
        )
        for point in points
    ]
    factor = float(np.exp(_BAND))
    band = _band(x, y, [(0.0, 0.0), (top / factor, top)], [(0.0, 0.0), (top, top / factor)])
    ticks = linear_ticks(0.0, top, 5)
    return _square(x, y, ticks, band, dots, "background work on the twin against live")


def _dot(x: float, y: float, colour: str, description: str) -> str:
    return tag(
        "circle",
        hint(description),
        cx=x,
        cy=y,
        r=5.5,
        fill=colour,
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
    x: Scale, y: Scale, ticks: Sequence[float], band: str, dots: Sequence[str], label: str
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
    return svg(_SIZE, _SIZE, [*grid, *dots], label=label)


def _distances(arms: Sequence[ArmRow]) -> str:
    """The mean distance of each signal as bars: the twin's, and naive replay's."""
    means = mean_distances(arms)
    values = [*means.twin.values(), *means.replay.values(), *means.floor.values()]
    width, height, left = 1040.0, 26.0 * len(means.twin) + 40.0, 220.0
    top = max([0.1, *values])
    x = Scale(low=0.0, high=top, start=left, end=width - 20)
    parts = []
    for value in linear_ticks(0.0, top, 6):
        parts.append(line(x(value), 4, x(value), height - 30, class_="grid"))
        parts.append(text(x(value), height - 12, f"{value:g}", class_="mid"))
    for i, (name, twin) in enumerate(means.twin.items()):
        base = 8.0 + 26.0 * i
        parts.append(text(left - 8, base + 12, name, class_="end"))
        replay, floor = means.replay.get(name), means.floor.get(name)
        if replay is not None:
            hint_text = f"{name}, replay: {replay:.3f}"
            parts.append(_bar(hint_text, left, base, x(replay) - left, "var(--ref1)"))
        parts.append(
            _bar(f"{name}, twin: {twin:.3f}", left, base + 9.0, x(twin) - left, "var(--c1)")
        )
        if floor is not None:
            parts.append(line(x(floor), base - 2, x(floor), base + 19, class_="slo"))
    return svg(width, height, parts, label="Distance of each signal, twin and replay")


def _bar(description: str, x: float, y: float, width: float, colour: str) -> str:
    return tag("rect", hint(description), x=x, y=y, width=width, height=8.0, fill=colour)
