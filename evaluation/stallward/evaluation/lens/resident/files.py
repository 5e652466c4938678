"""The folder of what was seen: figures, tables, pictures and the page."""

from __future__ import annotations

from pathlib import Path

from stallward.env.lens.resident.series import ResidentSeries
from stallward.evaluation.lens.pictures import write_pictures
from stallward.evaluation.lens.resident.figures import resident_result
from stallward.evaluation.lens.resident.page import resident_page
from stallward.evaluation.lens.resident.result import ResidentResult
from stallward.evaluation.lens.resident.tables import (
    TableFormat,
    looks_table,
    mappings_table,
    write_table,
)
from stallward.evaluation.report.experiment_page import write_experiment_page
from stallward.evaluation.results.serialise import save


def write_resident(
    folder: Path, series: ResidentSeries, *, source: str, kind: TableFormat
) -> ResidentResult:
    """Write everything, and return the figures.

    Args:
        folder: The folder; made if it is missing.
        series: What was seen.
        source: What was watched, in words.
        kind: The format of the tables ``looks`` and ``mappings``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    result = resident_result(series, source=source)
    save(folder / "result.json", result)
    write_table(folder, "looks", looks_table(series), kind)
    write_table(folder, "mappings", mappings_table(series), kind)
    page = resident_page(series, result)
    write_experiment_page(page, folder / "report.html")
    write_pictures(folder / "pictures", page)
    return result
