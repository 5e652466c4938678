"""The folder of an analysis: figures, tables, pictures and the page."""

from __future__ import annotations

from pathlib import Path

from stallward.env.lens.analysis import Analysis
from stallward.evaluation.lens.figures import Costs, policy_curves, workingset_result
from stallward.evaluation.lens.page import workingset_page
from stallward.evaluation.lens.pictures import write_pictures
from stallward.evaluation.lens.result import WorkingsetResult
from stallward.evaluation.lens.tables import write_curves, write_map, write_sizes
from stallward.evaluation.report.experiment_page import write_experiment_page
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
    write_pictures(folder / "pictures", page)
    return result
