"""Draw the figures of the documents that the project was founded on beside ours.

``python scripts/documents_picture.py`` draws ``docs/pictures/documents.svg`` from
``docs/pictures/documents.csv``, whose figures are those of ``docs/documents.md``.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final

import numpy as np

from stallward.evaluation.report.svg import (
    STYLE,
    Scale,
    line,
    linear_ticks,
    log10,
    log_ticks,
    tag,
    text,
    title,
)

PICTURES: Final = Path(__file__).parents[1] / "docs/pictures"
FIGURES: Final = PICTURES / "documents.csv"
PICTURE: Final = PICTURES / "documents.svg"
TIMES: Final = "times"
"""The unit of ratios, which are drawn on a logarithmic axis."""

PANEL: Final = 510.0
NAMES: Final = 262.0
ROW: Final = 26.0
ROWS: Final = 5
HEIGHT: Final = 58 + ROW * ROWS + 34
COLUMNS: Final = 2
OURS: Final = "#1f6feb"
THEIRS: Final = "#37414d"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure of a document, and ours."""

    panel: str
    unit: str
    label: str
    theirs: float | None
    ours: float
    low: float | None
    """The lower end of our 95 % interval, where there is one."""
    high: float | None


def read_rows(lines: Iterable[str]) -> list[Row]:
    """The rows of the file of figures."""

    def known(value: str) -> float | None:
        return float(value) if value else None

    return [
        Row(
            panel=one["panel"],
            unit=one["unit"],
            label=one["figure"],
            theirs=known(one["theirs"]),
            ours=float(one["ours"]),
            low=known(one["low"]),
            high=known(one["high"]),
        )
        for one in csv.DictReader(lines)
    ]


def picture(rows: Sequence[Row]) -> str:
    """An SVG image with a panel for each kind of figure. Pure."""
    panels = [list(group) for _, group in groupby(rows, key=lambda row: row.panel)]
    width = PANEL * COLUMNS
    height = HEIGHT * -(-len(panels) // COLUMNS) + 44
    parts = [
        title("Figures of the four documents, and what is measured here"),
        tag("style", STYLE),
        tag("rect", width=width, height=height, rx=8, fill="#ffffff"),
        _mark(24.0, 24.0, theirs=True),
        text(36, 28.5, "the document"),
        _mark(144.0, 24.0, theirs=False),
        text(156, 28.5, "here, with the 95 % interval where there is one"),
    ]
    for i, panel in enumerate(panels):
        across, down = i % COLUMNS, i // COLUMNS
        parts.extend(_panel(panel, PANEL * across, 44 + HEIGHT * down))
    return tag(
        "svg",
        *parts,
        viewBox=f"0 0 {width:.0f} {height:.0f}",
        role="img",
        xmlns="http://www.w3.org/2000/svg",
    )


def _panel(rows: Sequence[Row], left: float, top: float) -> list[str]:
    ratios = rows[0].unit == TIMES
    values = [
        value for row in rows for value in (row.theirs, row.ours, row.low, row.high)
        if value is not None
    ]  # fmt: skip
    x = Scale(
        low=0.9 * min(*values, 1.0) if ratios else min(0.0, 1.1 * min(values)),
        high=1.2 * max(values) if ratios else 1.1 * max(values),
        start=left + NAMES,
        end=left + PANEL - 24,
        warp=log10 if ratios else np.asarray,
    )
    bottom = top + 46 + ROW * len(rows)
    parts = [text(left + 18, top + 24, rows[0].panel, class_="h")]
    for value in log_ticks(x.low, x.high) if ratios else linear_ticks(x.low, x.high, 5):
        stroke = "#8c959f" if value == (1.0 if ratios else 0.0) else "#e1e6eb"
        parts.append(line(x(value), top + 38, x(value), bottom, stroke=stroke))
        written = f"{value:g}" if ratios else f"{value:g} %"
        parts.append(text(x(value), bottom + 17, written, class_="m s"))
    for i, row in enumerate(rows):
        y = top + 56 + ROW * i
        parts.append(text(left + NAMES - 12, y + 4.5, row.label, class_="e"))
        if row.low is not None and row.high is not None:
            parts.append(line(x(row.low), y, x(row.high), y, stroke=OURS, stroke_width=2))
        parts.append(_mark(x(row.ours), y, theirs=False))
        if row.theirs is not None:
            parts.append(_mark(x(row.theirs), y, theirs=True))
    return parts


def _mark(x: float, y: float, *, theirs: bool) -> str:
    if theirs:
        return tag("circle", cx=x, cy=y, r=6.0, fill="none", stroke=THEIRS, stroke_width=2)
    return tag("circle", cx=x, cy=y, r=4.5, fill=OURS)


def main() -> None:
    """Draw the picture."""
    with FIGURES.open(newline="", encoding="utf-8") as file:
        rows = read_rows(file)
    PICTURE.write_text(picture(rows) + "\n", encoding="utf-8")
    print(PICTURE)


if __name__ == "__main__":
    main()
