"""The picture of a trace, by Matplotlib: SVG and PNG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stallward.evaluation.report.drawing import hue
from stallward.lens.plot.panel import Panel

COLOURS: Final = tuple(hue(f"var(--c{number})") for number in (1, 0, 2, 3, 6, 4, 5))
_WIDTH: Final = 9.0
_HEIGHT: Final = 2.1
"""Inches of a panel."""
_ONE_MINUTE_S: Final = 300.0
"""From here on, the time is shown in minutes."""


def draw_panels(panels: Sequence[Panel], title: str) -> Figure:
    """Draw the panels one below the other, over the same time."""
    figure = Figure(figsize=(_WIDTH, 0.6 + _HEIGHT * len(panels)), layout="constrained")
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    rows = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    longest_s = max(float(line.seconds[-1]) for panel in panels for line in panel.lines)
    scale, unit = (60.0, "minutes") if longest_s > _ONE_MINUTE_S else (1.0, "seconds")
    for axes, panel in zip(rows, panels, strict=True):
        _draw(axes, panel, scale)
    rows[-1].set_xlabel(unit)
    rows[-1].set_xlim(0.0, max(longest_s / scale, 1e-6))
    return figure


def _draw(axes: Axes, panel: Panel, scale: float) -> None:
    if panel.stacked:
        values = [np.nan_to_num(line.values) for line in panel.lines]
        axes.stackplot(
            panel.lines[0].seconds / scale,
            values,
            labels=[line.label for line in panel.lines],
            colors=COLOURS,
            alpha=0.75,
            linewidth=0,
        )
    else:
        for number, line in enumerate(panel.lines):
            axes.plot(
                line.seconds / scale,
                line.values,
                label=line.label,
                color="#999999" if line.faint else COLOURS[number % len(COLOURS)],
                linestyle="--" if line.faint else "-",
                linewidth=1.3,
                marker="." if np.isfinite(line.values).sum() < 3 else "",
            )
    axes.set_title(panel.title, loc="left", fontsize=9, fontweight="bold")
    axes.set_ylabel(panel.unit, fontsize=8)
    axes.set_ylim(0.0, 1.04 * axes.get_ylim()[1])
    axes.tick_params(labelsize=8)
    axes.grid(visible=True, alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=7.5, loc="upper left", bbox_to_anchor=(1.0, 1.02), frameon=False)


def save(figure: Figure, base: Path) -> tuple[Path, ...]:
    """Write a picture as SVG and as PNG.

    Args:
        figure: The picture.
        base: The files' name without its ending.
    """
    base.parent.mkdir(parents=True, exist_ok=True)
    written = []
    for ending in (".svg", ".png"):
        path = base.with_name(base.name + ending)
        figure.savefig(path, dpi=130, metadata={"Date": None} if ending == ".svg" else None)
        written.append(path)
    return tuple(written)
