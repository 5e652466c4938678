"""The file of a trace: CSV while it is made, CSV or Parquet afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from stallward.agent.schema.file_kinds import other_kind_of
from stallward.lens.errors import TraceFileError
from stallward.lens.trace.columns import TICK_COLUMNS, ColumnType, Table
from stallward.lens.trace.csv_file import rows_of
from stallward.lens.trace.tables import TABLES, table_of
from stallward.lens.trace.tracers.node import TABLE as NODE_TABLE

PARQUET: Final = ".parquet"
_RECORDED: Final = "node_memory_total_4kib"
"""A column that the ticks of a recording have."""
_PAGES: Final = "_4kib"
_IN_TURN: Final = ("node_psi_io_", "node_psi_cpu_")
"""What a recording has only now and then: held in between, it would look like steps."""
_TYPES: Final = {
    ColumnType.COUNT: pa.int64(),
    ColumnType.NUMBER: pa.float64(),
    ColumnType.TEXT: pa.string(),
}


def make_parquet(path: Path, table: Table) -> None:
    """Make a Parquet file of the CSV file beside it, piece by piece, and remove that.

    Args:
        path: The Parquet file.
        table: The columns.
    """
    source = rows_of(path)
    building = path.with_name(f".{path.name}.tmp")
    schema = _schema(table)
    try:
        with (
            pa.csv.open_csv(source, convert_options=_options(table)) as batches,
            pq.ParquetWriter(
                building, schema, compression="zstd", write_page_checksum=True
            ) as file,
        ):
            for batch in batches:
                file.write_batch(batch)
        building.replace(path)
    finally:
        building.unlink(missing_ok=True)
    source.unlink()


def _schema(table: Table) -> pa.Schema:
    columns = (*TICK_COLUMNS, *table.columns)
    return pa.schema([(column.name, _TYPES[column.type]) for column in columns])


def _options(table: Table) -> pa.csv.ConvertOptions:
    return pa.csv.ConvertOptions(
        column_types=_schema(table), null_values=[""], strings_can_be_null=True
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFile:
    """A trace that was read."""

    table: Table
    columns: pa.Table
    path: Path
    """The file that it was read from."""
    torn: bool
    """Whether its end is missing, because the trace was killed."""

    def numbers(self, name: str) -> NDArray[np.float64]:
        """The values of a column; NaN for those that could not be read."""
        values = self.columns[name].cast(pa.float64()).to_numpy(zero_copy_only=False)
        return np.asarray(values, dtype=np.float64)

    def texts(self, name: str) -> list[str]:
        """The values of a column of text; empty for those that could not be read."""
        return [value or "" for value in self.columns[name].to_pylist()]


def read_trace(path: Path) -> TraceFile:
    """Read a trace, also one that was killed while it was made.

    Raises:
        TraceFileError: If there is none, or it cannot be understood.
    """
    torn = False
    if not path.exists() and rows_of(path).exists():
        path, torn = rows_of(path), True
    if not path.is_file():
        raise TraceFileError(
            f"There is no trace {path}.",
            next_step="`stallward trace KIND --out FILE.parquet` makes one.",
        )
    other = other_kind_of(path)
    if other is not None:
        raise TraceFileError(f"{path} is {other.what}.", next_step=other.next_step)
    try:
        if path.suffix == PARQUET:
            columns = _like_a_trace(pq.read_table(path))
            table = _known(columns.schema.names, path)
        else:
            content = path.read_bytes()
            whole, end, rest = content.rpartition(b"\n")
            torn = torn or bool(rest)
            header = whole.partition(b"\n")[0].decode("utf-8", "replace")
            table = _known(header.split(","), path)
            columns = pa.csv.read_csv(
                pa.BufferReader(whole + end), convert_options=_options(table)
            )
    except (pa.ArrowInvalid, OSError) as error:
        raise TraceFileError(
            f"{path} cannot be read: {error}", next_step="Trace again, or cut the broken lines."
        ) from error
    return TraceFile(table=table, columns=columns, path=path, torn=torn)


def _like_a_trace(columns: pa.Table) -> pa.Table:
    """Make a trace of the node of the ticks of a recording, whose zone is the group.

    A recording names what both have in common alike, and counts some sizes in pages. Any other
    table is returned as it is.
    """
    if table_of(columns.schema.names) is not None or _RECORDED not in columns.schema.names:
        return columns
    arrays: dict[str, pa.ChunkedArray] = {}
    for recorded in columns.schema.names:
        if recorded.startswith(_IN_TURN):
            continue
        values, name = columns[recorded], recorded
        if recorded.endswith(_PAGES):
            values, name = pc.multiply(values, 4096), f"{recorded.removesuffix(_PAGES)}_bytes"
        arrays[f"group_{name[5:]}" if name.startswith("zone_") else name] = values
    ticks = pa.array(range(1, columns.num_rows + 1))
    arrays |= {"tick": ticks, "wall_time": pa.nulls(columns.num_rows, pa.string())}
    schema = _schema(NODE_TABLE)
    return pa.table(
        {
            field.name: arrays[field.name].cast(field.type)
            if field.name in arrays
            else pa.nulls(columns.num_rows, field.type)
            for field in schema
        }
    )


def _known(names: list[str], path: Path) -> Table:
    table = table_of(names)
    if table is None:
        kinds = ", ".join(one.kind for one in TABLES)
        raise TraceFileError(
            f"{path} does not have the columns of a trace ({', '.join(names)[:120]}).",
            next_step=f"Give a file of `stallward trace` ({kinds}), with --columns all.",
        )
    return table
