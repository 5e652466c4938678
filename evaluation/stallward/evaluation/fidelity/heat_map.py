"""Where a twin is off: a cell for every signal of every arm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from stallward.evaluation.report.svg import svg, tag, text
from stallward.evaluation.report.svg import title as hint

_ROW: Final = 17.0
_COLUMN: Final = 34.0
_LEFT: Final = 330.0
_TOP: Final = 190.0
_GAP: Final = 10.0
"""Between scenarios."""
_FULL: Final = 0.5
"""Distance, in units of how much a signal varies live, from which a cell is as dark as can be."""


def heat(rows: Sequence[Mapping[str, Any]]) -> str:
    """The twin's distance of every signal of every arm; framed where live is from live as far."""
    names = list(dict.fromkeys(name for row in rows for name in row["distances"]["twin"]))
    parts = [
        text(0, 0, name, transform=f"translate({_LEFT + (k + 0.65) * _COLUMN:.0f} {_TOP - 8:.0f}) "
             "rotate(-60)")
        for k, name in enumerate(names)
    ]  # fmt: skip
    y, before = _TOP, None
    for row in rows:
        y += _GAP if before not in (None, row["scenario"]) else 0.0
        before = row["scenario"]
        parts.append(text(_LEFT - 8, y + 12, f"{row['scenario']} {row['arm']}", class_="end"))
        parts += [_cell(row, name, _LEFT + k * _COLUMN, y) for k, name in enumerate(names)]
        y += _ROW
    key = (
        '<div class="key"><span>darker: further, all of it from '
        f"{_FULL:g}</span><span>framed: no further than live from live</span></div>"
    )
    width = _LEFT + _COLUMN * len(names) + 70.0
    return key + svg(width, y + 10.0, parts, label="Distance of each signal of each arm")


def _cell(row: Mapping[str, Any], name: str, x: float, y: float) -> str:
    twin, floor = (row["distances"][of].get(name) for of in ("twin", "floor"))
    if twin is None:
        return ""
    within = floor is not None and twin <= floor
    said = f"{row['scenario']} {row['arm']}, {name}: {twin:.3f}"
    return tag(
        "rect",
        hint(said if floor is None else f"{said}, live from live {floor:.3f}"),
        x=x + 1.5,
        y=y + 1.5,
        width=_COLUMN - 3.0,
        height=_ROW - 3.0,
        fill="var(--c1)",
        fill_opacity=f"{min(twin / _FULL, 1.0):.2f}",
        stroke="var(--ink)" if within else "var(--line)",
        stroke_width=1.2 if within else 0.6,
    )
