"""The heat map of a twin's distances: a cell for every signal of every arm. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from stallward.evaluation.fidelity.result import ArmRow

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
