"""The page of ``stallward fidelity``: twin against live in charts, in one file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from stallward.evaluation.report.charts import COLOURS
from stallward.evaluation.report.page import put_page, render_template
from stallward.evaluation.report.svg import Scale, line, linear_ticks, svg, tag, text
from stallward.evaluation.report.svg import title as hint
from stallward.research.fidelity.result import (
    ArmRow,
    FidelityResult,
    FidelitySummary,
    FidelityTable,
)
from stallward.research.fidelity.scatter import Dot, latency_scatter, work_scatter
from stallward.research.fidelity.table import fidelity_rows, mean_distances

# ---------- The heat map of a twin's distances: a cell for every signal of every arm.

_ROW: Final = 17.0
_COLUMN: Final = 34.0
_LEFT: Final = 330.0
_TOP: Final = 190.0
_GAP: Final = 10.0
"""Space between two scenarios, in pixels."""
_FULL: Final = 0.5
"""The distance, in units of a signal's variation live, at which a cell is fully dark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """The cell for the distance of one signal of one arm."""

    x: float
    """The left edge, in pixels."""
    y: float
    """The upper edge."""
    width: float
    """The width."""
    height: float
    """The height."""
    opacity: str
    """How dark the cell is."""
    framed: bool
    """Whether live is at least as far from live."""
    hint: str
    """The text shown when a pointer rests on the cell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnName:
    """The name of a signal, and the position where it begins."""

    x: float
    y: float
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatRow:
    """An arm: its name, the position where that ends, and a cell for every known signal."""

    x: float
    y: float
    name: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap:
    """The whole map; ``full`` is the distance at which a cell is fully dark."""

    width: float
    height: float
    full: str
    columns: tuple[ColumnName, ...]
    rows: tuple[HeatRow, ...]


def heat_map(arms: Sequence[ArmRow]) -> HeatMap:
    """Lay out the twin's distance of every signal of every arm."""
    names = list(dict.fromkeys(name for arm in arms for name in arm.distances.twin))
    rows: list[HeatRow] = []
    y, before = _TOP, None
    for arm in arms:
        y += _GAP if before not in (None, arm.scenario) else 0.0
        before = arm.scenario
        cells = [_cell(arm, name, _LEFT + k * _COLUMN, y) for k, name in enumerate(names)]
        rows.append(
            HeatRow(
                x=_LEFT - 8,
                y=y + 12,
                name=f"{arm.scenario} {arm.arm}",
                cells=tuple(cell for cell in cells if cell is not None),
            )
        )
        y += _ROW
    return HeatMap(
        width=_LEFT + _COLUMN * len(names) + 70.0,
        height=y + 10.0,
        full=f"{_FULL:g}",
        columns=tuple(
            ColumnName(x=round(_LEFT + (k + 0.65) * _COLUMN), y=_TOP - 8, name=name)
            for k, name in enumerate(names)
        ),
        rows=tuple(rows),
    )


def _cell(arm: ArmRow, name: str, x: float, y: float) -> Cell | None:
    twin, floor = arm.distances.twin.get(name), arm.distances.floor.get(name)
    if twin is None:
        return None
    words = f"{arm.scenario} {arm.arm}, {name}: {twin:.3f}"
    return Cell(
        x=x + 1.5,
        y=y + 1.5,
        width=_COLUMN - 3.0,
        height=_ROW - 3.0,
        opacity=f"{min(twin / _FULL, 1.0):.2f}",
        framed=floor is not None and twin <= floor,
        hint=words if floor is None else f"{words}, live from live {floor:.3f}",
    )


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
        latency_chart=latency_scatter(_dots(table.arms, colours, "ms"), "p95"),
        work_chart=work_scatter(_dots(table.arms, colours, "share")),
        distance_chart=_distances(table.arms),
        heat_map=heat_map(table.arms),
        notes=tuple(notes),
        headers=headers,
        rows=tuple(rows),
    )


def _dots(arms: Sequence[ArmRow], colours: Mapping[str, str], unit: str) -> list[Dot]:
    """The p95 of each arm, or its background work, where it is known on both sides."""
    dots = []
    for arm in arms:
        live, twin = (
            (arm.live_ms.p95, arm.twin_ms.p95) if unit == "ms" else (arm.live_work, arm.twin_work)
        )
        if live is not None and twin is not None:
            colour = colours[arm.scenario]
            dots.append(Dot(name=f"{arm.scenario} {arm.arm}", colour=colour, live=live, twin=twin))
    return dots


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
