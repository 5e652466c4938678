"""The folder of an analysis: figures, tables, pictures and the page."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from stallward.evaluation.report.experiment_page import write_experiment_page
from stallward.evaluation.results.serialise import save
from stallward.lens.pictures import write_pictures
from stallward.lens.workingset.analysis import Analysis
from stallward.lens.workingset.reference_map import ReferenceMap
from stallward.lens.workingset.report.figures import (
    Costs,
    PolicyCurve,
    policy_curves,
    workingset_result,
)
from stallward.lens.workingset.report.page import workingset_page
from stallward.lens.workingset.report.result import WorkingsetResult
from stallward.lens.workingset.sizes import SizeSeries

# ---------- The Parquet files of an analysis


def write_curves(path: Path, curves: dict[str, PolicyCurve]) -> None:
    """Write every point of every policy."""
    rows = [
        pa.table(
            {
                "policy": pa.array([name] * one.faults.size).dictionary_encode(),
                "parameter": one.function.parameter,
                "mean_pages": one.function.mean_pages,
                "faults": one.faults,
                "standard_error": one.standard_errors,
                "lifetime": one.function.lifetime,
                "space_time": one.space_time,
            }
        )
        for name, one in curves.items()
    ]
    _write(path, pa.concat_tables(rows).unify_dictionaries())


def write_sizes(path: Path, sizes: tuple[SizeSeries, ...]) -> None:
    """Write the samples of the working-set size for every window."""
    columns = {
        "theta": [np.full(one.times.size, one.theta) for one in sizes],
        "time": [one.times for one in sizes],
        "pages": [one.pages for one in sizes],
        "faults": [one.faults for one in sizes],
    }
    empty = np.empty(0, dtype=np.int64)
    _write(path, pa.table({name: np.concatenate([empty, *c]) for name, c in columns.items()}))


def write_map(path: Path, drawn: ReferenceMap) -> None:
    """Write what of the address space was touched when: a row for each region and step of time.

    ``classes`` has bit 0 for instructions, 1 for loads, 2 for stores and 3 for modifications.
    """
    rows, columns = np.nonzero(drawn.cells)
    table = pa.table(
        {
            "address": drawn.addresses[rows],
            "time": columns * drawn.step + 1,
            "classes": drawn.cells[rows, columns],
        }
    )
    facts = {"region_bytes": str(drawn.region_bytes), "step": str(drawn.step)}
    _write(path, table.replace_schema_metadata(facts))


def _write(path: Path, table: pa.Table) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    pq.write_table(table, temporary, compression="zstd")
    temporary.replace(path)


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
