"""The folder of an analysis: figures, tables, pictures and the page."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from stallward.env.lens.analysis import Analysis
from stallward.evaluation.lens.figures import Costs, policy_curves, workingset_result
from stallward.evaluation.lens.page import workingset_page
from stallward.evaluation.lens.result import WorkingsetResult
from stallward.evaluation.lens.tables import write_curves, write_map, write_sizes
from stallward.evaluation.report.experiment_page import ExperimentPage, write_experiment_page
from stallward.evaluation.results.serialise import save


def write_analysis(
    folder: Path, analysis: Analysis, costs: Costs, *, source: str
) -> WorkingsetResult:
    """Write everything, and return the figures.

    The folder gets ``result.json``, ``curves.parquet``, ``sizes.parquet``, ``map.parquet``,
    ``report.html`` and ``pictures/*.svg``.

    Args:
        folder: The folder; made if it is missing.
        analysis: The analysis.
        costs: What a fault costs.
        source: Where the trace came from, in words.
    """
    folder.mkdir(parents=True, exist_ok=True)
    curves = policy_curves(analysis, costs)
    result = workingset_result(analysis, costs, source=source)
    save(folder / "result.json", result)
    write_curves(folder / "curves.parquet", curves)
    write_sizes(folder / "sizes.parquet", analysis.sizes)
    write_map(folder / "map.parquet", analysis.map)
    page = workingset_page(analysis, curves, result)
    write_experiment_page(page, folder / "report.html")
    _write_pictures(folder / "pictures", page)
    return result


def _write_pictures(folder: Path, page: ExperimentPage) -> None:
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
