"""How a catalogue is laid out.

A catalogue is a folder with ``catalogue.json`` and five Parquet datasets, each partitioned by node
and day (UTC, of the first tick)::

    catalogue.json
    runs/node=edge-7/day=2026-11-27/BATCH.parquet        a row for each recording
    ticks/node=edge-7/day=2026-11-27/BATCH.parquet       a row group for each recording
    actions/...  requests/...  units/...                 the same

A batch is what one command added for one node and day, at most :data:`MOST_IN_A_BATCH` recordings.
Files are never changed. Those of a batch have one name, and ``runs`` is written last, so a
recording is in the catalogue when its row is.
"""

from __future__ import annotations

from datetime import date
from typing import Final

import pyarrow as pa
import pyarrow.dataset as ds

VERSION: Final = 1
MARKER: Final = "catalogue.json"
RUNS: Final = "runs"
MOST_IN_A_BATCH: Final = 64
"""The footer of a Parquet file is read as a whole, so a file holds only so many row groups."""
PARTITIONING: Final = ds.partitioning(
    pa.schema([("node", pa.string()), ("day", pa.date32())]), flavor="hive"
)
NAMED: Final = ("recording", "scenario", "condition", "arm")
"""Columns of every table by which queries choose rows; a row group has one value of each."""
RUN_COLUMNS: Final = pa.schema(
    [
        *((name, pa.string()) for name in NAMED),
        ("sha256", pa.string()),
        ("batch", pa.string()),
        ("row", pa.int64()),
        ("seed", pa.int64()),
        ("started", pa.timestamp("us", tz="UTC")),
        ("length_s", pa.float64()),
        ("ticks", pa.int64()),
        ("requests", pa.int64()),
        ("units", pa.int64()),
        ("choices", pa.int64()),
        ("oom_kills", pa.int64()),
        ("stored_bytes", pa.int64()),
        ("ticks_row_group", pa.int64()),
        ("actions_row_group", pa.int64()),
        ("requests_row_group", pa.int64()),
        ("units_row_group", pa.int64()),
        ("run_json", pa.string()),
    ]
)
"""The columns of ``runs``. ``batch`` and ``row`` say where the row itself is. A row group is null
where the recording has no such rows; ``choices`` is null without propensities; ``run_json`` is the
recording's ``run.json``."""


def partition_of(node: str, day: date) -> str:
    """The folder of a node and a day in each dataset."""
    return f"node={node}/day={day.isoformat()}"
