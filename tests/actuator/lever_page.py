"""The tables of docs/reference/levers.md, which tests hold against the code."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/reference/levers.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeverRow:
    """What the page says of a lever, or of a few that share a row."""

    names: tuple[str, ...]
    """The parts before the colon of ``LeverResult.lever``, which tick records hold."""
    fields: tuple[str, ...]
    """The fields of the desired state."""
    threaded: bool
    """Whether a thread makes the write, because it may block."""
    rights: str
    """What the daemon must be allowed to do for it, beside reading."""


def lever_rows() -> list[LeverRow]:
    """The rows of the page; each lever stands in both tables."""
    tables: dict[str, dict[str, list[str]]] = {}
    head = ""
    for line in PAGE.read_text().splitlines():
        if not line.startswith("| "):
            continue
        first, *cells = (cell.strip() for cell in line.strip("|").split(" | "))
        if first == "lever":
            head = cells[-1]
        elif first != "---":
            tables.setdefault(head, {})[first] = cells
    what, where = tables["undone"], tables["rights"]
    assert list(what) == list(where)
    return [
        LeverRow(
            names=tuple(_words(name)),
            fields=tuple(_words(cells[0])),
            threaded={"yes": True, "no": False}[cells[2]],
            rights=where[name][-1],
        )
        for name, cells in what.items()
    ]


def _words(cell: str) -> list[str]:
    return re.findall(r"[\w.]+", cell)
