"""Reads and writes the Parquet files of a recording, encoded to be small.

- Floating-point times do not compress. They are stored as whole microseconds: ``time_s`` as
  ``time_us``, ``timing_sense_ms`` as ``timing_sense_us``.
- Sizes that are all multiples of a page are stored in pages: ``zone_anon_bytes`` as
  ``zone_anon_4kib``.
- Whole numbers are delta encoded. Those that jump, and floating-point numbers, are stored with the
  bytes of one rank together (byte stream split).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from stallward.agent.schema.file_kinds import next_step_of, other_kind_of
from stallward.env.errors import RecordingError

Column = NDArray[Any]

_LEVEL: Final = 19
"""Level of zstd: high, because a recording is written once and read often."""
_TIMES: Final = {"time_s": "time_us", "wall_time_s": "wall_time_us"}
_PAGE_BYTES: Final = 4096
_JUMPING: Final = frozenset({"wait_us", "sojourn_us"})
"""Whole numbers that delta encoding does not make smaller."""
_STORED_TIMES: Final = {stored: name for name, stored in _TIMES.items()}


def write_table(file: Path, columns: Mapping[str, pa.Array]) -> None:
    """Write columns of one length, with a checksum on every page.

    Raises:
        OSError: If the file cannot be written.
    """
    table = pa.table(dict(_as_stored(name, column) for name, column in columns.items()))
    pq.write_table(table, file, **parquet_options(table.schema))


def parquet_options(schema: pa.Schema, statistics: Sequence[str] = ()) -> dict[str, Any]:
    """How Parquet files of recordings are encoded.

    Args:
        schema: The columns as they are stored.
        statistics: The columns by which readers choose rows.
    """
    encoding = {
        f.name: "BYTE_STREAM_SPLIT"
        if pa.types.is_floating(f.type) or f.name in _JUMPING
        else "DELTA_BINARY_PACKED"
        for f in schema
        if pa.types.is_integer(f.type) or pa.types.is_floating(f.type)
    }
    return {
        "compression": "zstd",
        "compression_level": _LEVEL,
        "use_dictionary": [f.name for f in schema if pa.types.is_string(f.type)],
        "column_encoding": encoding,
        "write_statistics": list(statistics) or False,
        "store_schema": False,
        "write_page_checksum": True,  # zstd has none here: a flipped bit would go unnoticed
    }


def in_whole_units(table: pa.Table) -> pa.Table:
    """A stored table whose columns mean the same in every recording.

    Sizes are in bytes again, never in pages, and times of all versions are whole microseconds.
    """
    columns: dict[str, pa.ChunkedArray] = {}
    for name in table.column_names:
        column = table[name]
        if name.endswith("_4kib"):
            columns[f"{name[:-5]}_bytes"] = pc.multiply(column, _PAGE_BYTES)
        elif name in _TIMES or name.startswith("timing_"):
            columns.update([_as_stored(name, column)])
        else:
            columns[name] = column
    return pa.table(columns)


def _as_stored(name: str, column: pa.Array) -> tuple[str, pa.Array]:
    """The name and the numbers with which a column is stored."""
    if name in _TIMES:
        return _TIMES[name], _whole(column, 1e6)
    if name.startswith("timing_") and name.endswith("_ms"):
        return f"{name[:-3]}_us", _whole(column, 1e3)
    if name.endswith("_bytes") and pa.types.is_integer(column.type):
        values = column.drop_null().to_numpy()
        if values.size and not (values % _PAGE_BYTES).any():
            return f"{name[:-6]}_4kib", pc.divide(column, _PAGE_BYTES)
    return name, column


def _whole(column: pa.Array, per_unit: float) -> pa.Array:
    return pc.round(pc.multiply(column.cast(pa.float64()), per_unit)).cast(pa.int64())


def _as_read(name: str, column: Column) -> tuple[str, Column]:
    """The inverse of ``_as_stored``."""
    if name in _STORED_TIMES:
        return _STORED_TIMES[name], column * 1e-6
    if name.startswith("timing_") and name.endswith("_us"):
        return f"{name[:-3]}_ms", column * 1e-3
    if name.endswith("_4kib"):
        return f"{name[:-5]}_bytes", column * _PAGE_BYTES
    return name, column


def read_table(file: Path, needed: tuple[str, ...], *, ticks: bool = False) -> dict[str, Column]:
    """Read a table, and verify the checksums of its pages.

    Args:
        file: The Parquet file.
        needed: Columns that must be there and hold numbers only.
        ticks: Whether rows are ticks: times are then returned in seconds, timings in ms.

    Returns:
        The columns by name; null is NaN.

    Raises:
        RecordingError: If the file is missing or damaged, or lacks a column.
    """
    try:
        table = pq.read_table(file, memory_map=False, page_checksum_verification=True)
        columns = columns_of(table, ticks=ticks)
    except FileNotFoundError as error:
        raise RecordingError(
            f"{file.parent} is not a whole recording: {file.name} is missing.",
            next_step="Record it again with `stallward record`.",
        ) from error
    except (OSError, pa.ArrowException, ValueError, KeyError, TypeError) as error:
        # Names that are not Unicode, or occur twice, raise no ArrowException.
        other = other_kind_of(file)
        what = f"truncated, damaged or not Parquet ({type(error).__name__})"
        raise RecordingError(
            f"{file} is {what if other is None else other.what}.",
            next_step=next_step_of(other or error, "Record it again with `stallward record`."),
        ) from error
    check_columns(columns, needed, f"{file}")
    return columns


def columns_of(table: pa.Table, *, ticks: bool = False) -> dict[str, Column]:
    """The columns of a stored table, as they are read back (:func:`read_table`)."""
    columns = {name: _to_numpy(table[name]) for name in table.column_names}
    return dict(_as_read(*item) for item in columns.items()) if ticks else columns


def check_columns(columns: Mapping[str, Column], needed: Sequence[str], where: str) -> None:
    """Refuse a table that lacks columns of numbers only.

    Raises:
        RecordingError: If it lacks one.
    """
    for name in needed:
        column = columns.get(name)
        kinds = "f" if name.endswith("_s") else "iuf" if name != "ok" else "biu"
        if column is None or column.dtype.kind not in kinds or not np.isfinite(column).all():
            what = "no column" if column is None else "no numbers in its column"
            raise RecordingError(
                f"{where} is not a recording's: it has {what} {name!r}.",
                next_step="Give the directory that `stallward record` wrote.",
            )


def _to_numpy(column: pa.ChunkedArray) -> Column:
    if pa.types.is_string(column.type):
        return np.array(column.to_pylist(), dtype=object)
    if pa.types.is_boolean(column.type) and column.null_count == 0:
        return np.asarray(column.to_numpy(), dtype=bool)
    if column.null_count:
        return np.asarray(column.cast(pa.float64()).to_numpy(), dtype=np.float64)
    return np.asarray(column.to_numpy())
