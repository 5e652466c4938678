"""The page of ``stallward fidelity``: twin against live in charts, in one file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from stallward.evaluation.report.charts import COLOURS
from stallward.evaluation.report.drawing import hue, row_axes, svg_of, tip
from stallward.evaluation.report.experiment_page import (
    ExperimentPage,
    PageChart,
    PageSection,
    write_experiment_page,
)
from stallward.evaluation.report.svg import svg, tag, text, title
from stallward.research.fidelity.result import (
    ArmRow,
    FidelityResult,
    FidelitySummary,
    FidelityTable,
)
from stallward.research.fidelity.scatter import SHADED, Dot, latency_scatter, work_scatter
from stallward.research.fidelity.table import fidelity_rows, mean_distances

# ---------- The heat map of a twin's distances: a cell for every signal of every arm.

_INK: Final = hue("var(--ink)")
_ROW: Final = 17.0
_COLUMN: Final = 34.0
_LEFT: Final = 330.0
_TOP: Final = 190.0
_GAP: Final = 10.0
"""Space between two scenarios, in pixels."""
_FULL: Final = 0.5
"""The distance, in units of a signal's variation live, at which a cell is fully dark."""


def heat_map(arms: Sequence[ArmRow]) -> str:
    """The twin's distance of every signal of every arm."""
    names = list(dict.fromkeys(name for arm in arms for name in arm.distances.twin))
    parts = [
        text(0, 0, name, transform=f"translate({at:.0f} {_TOP - 8:.0f}) rotate(-60)")
        for k, name in enumerate(names)
        for at in (_LEFT + (k + 0.65) * _COLUMN,)
    ]
    y, before = _TOP, None
    for arm in arms:
        y += _GAP if before not in (None, arm.scenario) else 0.0
        before = arm.scenario
        parts.append(text(_LEFT - 8, y + 12, f"{arm.scenario} {arm.arm}", class_="end"))
        parts += [
            _cell(arm, name, _LEFT + k * _COLUMN, y)
            for k, name in enumerate(names)
            if name in arm.distances.twin
        ]
        y += _ROW
    width = _LEFT + _COLUMN * len(names) + 70.0
    return svg(width, y + 10.0, parts, label="Distance of each signal of each arm")


def _cell(arm: ArmRow, name: str, x: float, y: float) -> str:
    """A cell, framed where live is at least as far from live."""
    twin, floor = arm.distances.twin[name], arm.distances.floor.get(name)
    words = f"{arm.scenario} {arm.arm}, {name}: {twin:.3f}"
    framed = floor is not None and twin <= floor
    return tag(
        "rect",
        title(words if floor is None else f"{words}, live from live {floor:.3f}"),
        x=x + 1.5,
        y=y + 1.5,
        width=_COLUMN - 3.0,
        height=_ROW - 3.0,
        fill="var(--c1)",
        fill_opacity=f"{min(twin / _FULL, 1.0):.2f}",
        stroke=f"var({'--ink' if framed else '--line'})",
        stroke_width=1.2 if framed else 0.6,
    )


def write_page(result: FidelityResult, path: Path) -> None:
    """Write the page of a fidelity result."""
    write_experiment_page(_page(result), path)


def _page(result: FidelityResult) -> ExperimentPage:
    sections = _part(f"Twins {result.twins}", result.table)
    if result.left_out_scenarios is not None:
        sections += _part("Scenarios left out of every fit", result.left_out_scenarios)
    return ExperimentPage(
        experiment="fidelity",
        source=f"{len(result.table.arms)} arms, twins {result.twins}",
        headline=_headline(result.table.summary),
        sections=sections,
    )


def _headline(summary: FidelitySummary) -> str:
    error = summary.p95_error_median
    if error is None:
        return "No arm has a p95 both live and on the twin"
    return f"The median error of the twin's p95 is {100 * np.expm1(error):.0f} %"


def _part(title: str, found: FidelityTable) -> list[PageSection]:
    """The sections about a group of arms."""
    names = dict.fromkeys(arm.scenario for arm in found.arms)
    colours = {name: f"var(--c{k % COLOURS})" for k, name in enumerate(names)}
    table, notes = fidelity_rows(found)
    latency = latency_scatter(_dots(found.arms, colours, "ms"), "p95")
    work = work_scatter(_dots(found.arms, colours, "share"))
    return [
        PageSection(
            title=title,
            what=SHADED,
            key=colours,
            charts=(
                PageChart(title="p95 latency, ms", svg=latency),
                PageChart(title="Background work", svg=work),
            ),
        ),
        PageSection(
            title="Distance of each signal",
            what="Earth mover's distance between the values per second, in units of the signal's "
            "variation live; mean over arms. Naive replay plays back what was recorded without "
            "control. A dashed line is the distance of live from live.",
            key={"twin": "var(--c1)", "naive replay": "var(--ref1)"},
            charts=(PageChart(svg=_distances(found.arms)),),
        ),
        PageSection(
            title="Distance by arm",
            what=f"The darker, the larger the distance; a cell is fully dark from {_FULL:g}. It is "
            "framed where the distance is no larger than that of live from live.",
            charts=(PageChart(svg=heat_map(found.arms)),),
        ),
        PageSection(title="All arms", table=table, notes=tuple(notes)),
    ]


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
    most = max([0.1, *means.twin.values(), *means.replay.values(), *means.floor.values()])
    drawn = row_axes(
        list(means.twin), 0.0, 1.02 * most, "{x:g}", width=1040.0, row=26.0, left=220.0
    )
    for place, (name, twin) in enumerate(means.twin.items()):
        for whose, distance, at, colour in (
            ("replay", means.replay.get(name), place - 0.18, "var(--ref1)"),
            ("twin", twin, place + 0.18, "var(--c1)"),
        ):
            if distance is not None:
                what = tip(f"{name}, {whose}: {distance:.3f}")
                drawn.barh(at, distance, 0.32, color=hue(colour), gid=what)
        if name in means.floor:
            drawn.plot([means.floor[name]] * 2, [place - 0.4, place + 0.4], "--", color=_INK)
    return svg_of(drawn, "Distance of each signal, twin and replay")
