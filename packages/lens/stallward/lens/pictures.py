"""The charts of a page as files of their own."""

from __future__ import annotations

from pathlib import Path

from stallward.evaluation.report.experiment_page import ExperimentPage
from stallward.evaluation.report.page import standalone


def write_pictures(folder: Path, page: ExperimentPage) -> None:
    """Write each chart of the page as a file that needs no page."""
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.svg"):
        old.unlink()
    number = 0
    for section in page.sections:
        for chart in section.charts:
            number += 1
            words = f"{section.title} {chart.title}".lower().replace("θ", "theta")
            name = "-".join("".join(c if c.isalnum() else " " for c in words).split())
            (folder / f"{number:02d}-{name}.svg").write_text(
                standalone(chart.svg), encoding="utf-8"
            )
