"""The page of ``stallward fidelity``: twin against live as pictures, in one file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

import numpy as np

from stallward.evaluation.fidelity.heat_map import heat
from stallward.evaluation.fidelity.table import fidelity_notes, fidelity_rows, mean_distances
from stallward.evaluation.report.charts import COLOURS
from stallward.evaluation.report.html import page_of
from stallward.evaluation.report.page import put_page, section
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
"""The target of the median error, drawn beside the diagonal."""
Rows = Sequence[Mapping[str, Any]]


def write_page(found: Mapping[str, Any], path: Path) -> None:
    """Write the page of what ``measure_fidelity`` found."""
    put_page(path, render_page(found))


def render_page(found: Mapping[str, Any]) -> str:
    """The whole page. Pure."""
    twins, arms = found["twins"], len(found["arms"])
    body = [
        f'<header><p class="kicker"><b>fidelity</b> · {arms} arms, twins {escape(twins)}</p>'
        f"<h1>{escape(_headline(found))}</h1></header>",
        _part(f"Twins {twins}", found),
    ]
    if found["left_out_scenarios"] is not None:
        body.append(_part("Scenarios left out of every fit", found["left_out_scenarios"]))
    return page_of("fidelity", "".join(body))


def _headline(found: Mapping[str, Any]) -> str:
    error = found["p95_error_median"]
    if error is None:
        return "No arm has a p95 both live and on the twin"
    return f"The twin's p95 is off by {100 * np.expm1(error):.0f} % in the median"


def _part(name: str, found: Mapping[str, Any]) -> str:
    rows: Rows = found["arms"]
    scenarios = list(dict.fromkeys(row["scenario"] for row in rows))
    notes = "".join(f"<li>{escape(note)}</li>" for note in fidelity_notes(found))
    headers, cells, _ = fidelity_rows(found)
    head = "".join(f"<th>{escape(h)}</th>" for h in headers)
    lines = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in cells
    )
    return "".join(
        [
            section(name, "Every dot is an arm; the shaded band is within 15 %.", _key(scenarios)),
            '<div class="pair">',
            section("p95 latency, ms", "", _scatter(rows, scenarios, "p95")),
            section("Background work", "", _work_scatter(rows, scenarios)),
            "</div>",
            section(
                "Distance of each signal",
                "Earth mover's distance of the seconds, in units of how much the signal varies "
                "live; the mean over arms. Naive replay plays back the trace under no controller.",
                _distances(rows),
            ),
            section("Distance by arm", "", f'<div class="scroll">{heat(rows)}</div>'),
            section("All arms", "", f"<ul>{notes}</ul>"
                    f'<div class="scroll"><table><thead><tr>{head}</tr></thead>'
                    f"<tbody>{lines}</tbody></table></div>"),
        ]
    )  # fmt: skip


def _colour(scenarios: Sequence[str], name: str) -> str:
    return f"var(--c{scenarios.index(name) % COLOURS})"


def _key(scenarios: Sequence[str]) -> str:
    items = "".join(
        f'<span><i style="background:{_colour(scenarios, name)}"></i>{escape(name)}</span>'
        for name in scenarios
    )
    return f'<div class="key">{items}</div>'


def _scatter(rows: Rows, scenarios: Sequence[str], name: str) -> str:
    """Twin over live, both on logarithmic axes."""
    known = [r for r in rows if r["live_ms"][name] and r["twin_ms"][name]]
    values = [r[side][name] for r in known for side in ("live_ms", "twin_ms")] or [1.0, 10.0]
    low, high = min(values) / 1.3, max(values) * 1.3
    x = Scale(low=low, high=high, start=_LEFT, end=_SIZE - 12, warp=log10)
    y = Scale(low=low, high=high, start=_BOTTOM, end=12, warp=log10)
    dots = [
        _dot(
            x(r["live_ms"][name]),
            y(r["twin_ms"][name]),
            _colour(scenarios, r["scenario"]),
            f"{r['scenario']} {r['arm']}: live {number(r['live_ms'][name], 'ms')} ms, "
            f"twin {number(r['twin_ms'][name], 'ms')} ms",
        )
        for r in known
    ]
    factor = float(np.exp(_BAND))
    band = _band(x, y, [(low, low * factor), (high / factor, high)],
                 [(low * factor, low), (high, high / factor)])  # fmt: skip
    return _square(x, y, log_ticks(low, high), band, dots, f"{name} on the twin over live")


def _work_scatter(rows: Rows, scenarios: Sequence[str]) -> str:
    known = [r for r in rows if r["live_work"] is not None and r["twin_work"] is not None]
    top = max([1.0, *(r[side] for r in known for side in ("live_work", "twin_work"))]) * 1.05
    x = Scale(low=0.0, high=top, start=_LEFT, end=_SIZE - 12)
    y = Scale(low=0.0, high=top, start=_BOTTOM, end=12)
    dots = [
        _dot(
            x(r["live_work"]),
            y(r["twin_work"]),
            _colour(scenarios, r["scenario"]),
            f"{r['scenario']} {r['arm']}: live {number(r['live_work'], 'share')}, "
            f"twin {number(r['twin_work'], 'share')}",
        )
        for r in known
    ]
    factor = float(np.exp(_BAND))
    band = _band(x, y, [(0.0, 0.0), (top / factor, top)], [(0.0, 0.0), (top, top / factor)])
    ticks = linear_ticks(0.0, top, 5)
    return _square(x, y, ticks, band, dots, "background work on the twin over live")


def _dot(x: float, y: float, colour: str, said: str) -> str:
    return tag(
        "circle",
        hint(said),
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


def _distances(rows: Rows) -> str:
    """Bars of each signal's mean distance: the twin's and naive replay's."""
    means = {of: mean_distances(rows, of) for of in ("twin", "replay", "floor")}
    names = list(means["twin"])
    top = max([0.1, *(v for each in means.values() for v in each.values())])
    width, height, left = 1040.0, 26.0 * len(names) + 40.0, 220.0
    x = Scale(low=0.0, high=top, start=left, end=width - 20)
    parts = []
    for value in linear_ticks(0.0, top, 6):
        parts.append(line(x(value), 4, x(value), height - 30, class_="grid"))
        parts.append(text(x(value), height - 12, f"{value:g}", class_="mid"))
    for i, name in enumerate(names):
        base = 8.0 + 26.0 * i
        parts.append(text(left - 8, base + 12, name, class_="end"))
        for of, offset, colour in (("replay", 0.0, "var(--ref1)"), ("twin", 9.0, "var(--c1)")):
            mean = means[of].get(name)
            if mean is not None:
                said = f"{name}, {of}: {mean:.3f}"
                parts.append(
                    tag("rect", hint(said), x=left, y=base + offset, width=x(mean) - left,
                        height=8.0, fill=colour)
                )  # fmt: skip
        floor = means["floor"].get(name)
        if floor is not None:
            parts.append(line(x(floor), base - 2, x(floor), base + 19, class_="slo"))
    key = (
        '<div class="key"><span><i style="background:var(--c1)"></i>twin</span>'
        '<span><i style="background:var(--ref1)"></i>naive replay</span>'
        "<span>dashed: live against live</span></div>"
    )
    return key + svg(width, height, parts, label="Distance of each signal, twin and replay")
