"""Opens the files of a catalogue, and tells what is wrong with one."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from typing import Final

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from stallward.env.errors import CatalogueError, RecordingError, StorageError
from stallward.env.storage import StorageFolder

# ---------- How a catalogue is laid out.
# A catalogue is a folder with ``catalogue.json`` and five Parquet datasets, each partitioned by node
# and day (UTC, of the first tick)::
#
#     catalogue.json
#     runs/node=edge-7/day=2026-11-27/BATCH.parquet        a row for each recording
#     ticks/node=edge-7/day=2026-11-27/BATCH.parquet       a row group for each recording
#     actions/...  requests/...  units/...                 the same
#
# A batch is what one command added for one node and day, at most :data:`MOST_IN_A_BATCH` recordings.
# Files are never changed. Those of a batch have one name, and ``runs`` is written last, so a
# recording is in the catalogue when its row is.

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


AGAIN: Final = "Add the recording again with `stallward catalogue add`; the others stay."
_KEPT: Final = "The recordings stay where they are; the same command goes on."


@functools.lru_cache(maxsize=8)
def storage_of(url: str) -> StorageFolder:
    """The storage of a catalogue.

    Raises:
        StorageError: If there is no such kind of storage, or what it needs is not installed.
    """
    return StorageFolder(url, kept=_KEPT)


def catalogue_version(folder: StorageFolder) -> int | None:
    """The version of the catalogue in a folder; ``None`` if there is none.

    Raises:
        CatalogueError: If it is another version than this program reads, or damaged.
        StorageError: If the storage cannot be read.
    """
    with folder.errors("read"):
        if not folder.system.exists(folder.place(MARKER)):
            return None
        text = folder.system.cat_file(folder.place(MARKER))
    try:
        version = json.loads(text)["version"]
    except (ValueError, KeyError, TypeError) as error:
        raise CatalogueError(
            f"{folder.url}/{MARKER} is damaged ({type(error).__name__}).",
            next_step=f'Write {{"version": {VERSION}}} into it if the folder is a catalogue.',
        ) from error
    if version != VERSION:
        raise CatalogueError(
            f"{folder.url} is a catalogue of version {version!r:.40}, this program reads "
            f"{VERSION}.",
            next_step="Use the version of stallward that wrote it, or add the recordings to a "
            "new place.",
        )
    return VERSION


@contextmanager
def parquet_file(url: str, place: str) -> Iterator[pq.ParquetFile]:
    """A Parquet file of a catalogue, opened to be read in parts."""
    with pq.ParquetFile(
        place, filesystem=storage_of(url).system, page_checksum_verification=True
    ) as file:
        yield file


@contextmanager
def reading(
    url: str, place: str, kind: type[CatalogueError | RecordingError] = RecordingError
) -> Iterator[None]:
    """Tell a file that is missing or damaged from a storage that refuses."""
    again = AGAIN
    if kind is CatalogueError:
        again = "Remove that file and add the recordings of its day again; the others stay."
    try:
        with storage_of(url).errors("read"):
            try:
                yield
            except FileNotFoundError as error:
                raise _BrokenError(f"{place} is missing") from error
            except (pa.ArrowException, OSError, KeyError) as error:
                if isinstance(error, OSError) and error.errno is not None:
                    raise  # the storage's own: rights, network
                raise _BrokenError(f"{place} is damaged: {str(error).strip()[:200]}") from error
    except StorageError as error:
        if isinstance(error.__cause__, _BrokenError):
            raise kind(f"{error.__cause__}.", next_step=again) from error.__cause__
        raise


class _BrokenError(Exception):
    """A file that is there no more, or not as it was written."""
