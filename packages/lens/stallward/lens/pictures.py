"""The charts of a page as files of their own."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from stallward.evaluation.report.experiment_page import ExperimentPage


def write_pictures(folder: Path, page: ExperimentPage) -> None:
    """Write each chart of the page as a file that needs no page."""
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.svg"):
        old.unlink()
    style = (resources.files("stallward.evaluation.report") / "report.css").read_text("utf-8")
    number = 0
    for section in page.sections:
        for chart in section.charts:
            number += 1
            words = f"{section.title} {chart.title}".lower().replace("θ", "theta")
            name = "-".join("".join(c if c.isalnum() else " " for c in words).split())
            content = chart.svg.replace(">", f"><style>{style}</style>", 1)
            (folder / f"{number:02d}-{name}.svg").write_text(content, encoding="utf-8")
