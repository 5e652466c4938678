"""The tables of what was seen, as Parquet, CSV or JSON."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

from stallward.lens.resident.series import ResidentSeries, name_of


class TableFormat(StrEnum):
    """The format of a table's file, and the ending of its name."""

    PARQUET = "parquet"
    CSV = "csv"
    JSON = "json"


def looks_table(series: ResidentSeries) -> pa.Table:
    """A row for each look."""
    looks = series.looks
    return pa.table(
        {
            "time": pa.array([one.time for one in looks], pa.float64()),
            "present_pages": pa.array([one.present for one in looks], pa.int64()),
            "file_pages": pa.array([one.file for one in looks], pa.int64()),
            "anonymous_pages": pa.array([one.present - one.file for one in looks], pa.int64()),
            "swapped_pages": pa.array([one.swapped for one in looks], pa.int64()),
            "reserved_pages": pa.array([one.reserved for one in looks], pa.int64()),
            "referenced_pages": pa.array([one.referenced for one in looks], pa.int64()),
            "window": pa.array([one.window for one in looks], pa.float64()),
        }
    )


def mappings_table(series: ResidentSeries) -> pa.Table:
    """A row for each change of a mapping; one that is gone has no pages."""
    changes = series.changes
    pages = [one.pages for one in changes]
    return pa.table(
        {
            "time": pa.array([one.time for one in changes], pa.float64()),
            "start": pa.array([one.mapping.start for one in pages], pa.uint64()),
            "end": pa.array([one.mapping.end for one in pages], pa.uint64()),
            "permissions": [one.mapping.permissions.decode("ascii", "replace") for one in pages],
            "name": pa.array([name_of(one) for one in pages], pa.string()),
            "gone": pa.array([one.gone for one in changes], pa.bool_()),
            "present_pages": _pages([0 if one.gone else one.pages.present for one in changes]),
            "file_pages": _pages([0 if one.gone else one.pages.file for one in changes]),
            "swapped_pages": _pages([0 if one.gone else one.pages.swapped for one in changes]),
            "reserved_pages": _pages([0 if one.gone else one.pages.reserved for one in changes]),
            "referenced_pages": _pages(
                [None if one.gone else one.pages.referenced for one in changes]
            ),
        }
    )


def _pages(values: list[int] | list[int | None]) -> pa.Array:
    return pa.array(values, pa.int64())


def write_table(folder: Path, name: str, table: pa.Table, kind: TableFormat) -> Path:
    """Write a table so that a reader sees all of it or the previous file; returns the file."""
    path = folder / f"{name}.{kind.value}"
    temporary = path.with_name(f".{path.name}.tmp")
    if kind is TableFormat.PARQUET:
        pq.write_table(table, temporary, compression="zstd")
    elif kind is TableFormat.CSV:
        pc.write_csv(table, temporary)
    else:
        text = "[\n" + ",\n".join(map(json.dumps, table.to_pylist())) + "\n]\n"
        temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
    return path
