"""Adds recordings to a catalogue: each once, whole, and those that cannot be added by name."""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from stallward.agent.errors import StallwardError, UsageError
from stallward.env.catalogue.files import (
    MARKER,
    MOST_IN_A_BATCH,
    NAMED,
    RUN_COLUMNS,
    RUNS,
    VERSION,
    catalogue_version,
    partition_of,
)
from stallward.env.catalogue.read import Catalogue
from stallward.env.errors import RecordingError
from stallward.env.recording.recording import TABLES
from stallward.env.recording.stored import RecordingFolder, choices_of, started_at
from stallward.env.recording.tables import in_whole_units, parquet_options
from stallward.env.storage import StorageFolder

_KEPT: Final = (
    "The recordings stay where they are, and so does what was added before; the same command "
    "goes on."
)
_NODE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,252}")
Report = Callable[[str, float], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """What one command did."""

    added: tuple[str, ...]
    """The names of the recordings that are new in the catalogue."""
    known: int
    """How many were in it already."""
    refused: tuple[tuple[Path, str], ...]
    """The recordings that cannot be added, and why."""
    stored_bytes: int
    """What the new ones take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _New:
    """A recording that is to be added."""

    folder: RecordingFolder
    sha256: str
    node: str
    started: datetime

    @property
    def day(self) -> date:
        return self.started.date()


def add_recordings(
    paths: Sequence[Path],
    url: str,
    *,
    node: str = "",
    day: date | None = None,
    report: Report = lambda _message, _share: None,
) -> Added:
    """Add recordings to a catalogue, which is made if there is none.

    A recording is known by the digest of its files, so one that is added again changes nothing,
    unless files of the catalogue that hold it are gone: then it is written anew. The memory does
    not grow with the number of recordings.

    Args:
        paths: The directories of the recordings.
        url: The place of the catalogue: a path, or a URL of fsspec.
        node: The node of recordings that do not say theirs.
        day: The day of recordings whose ticks have no wall time.
        report: Called with the progress.

    Raises:
        CatalogueError: If the catalogue is another version's, or damaged.
        StorageError: If the storage cannot be read or written.
        UsageError: If the name of the node cannot be one of a folder.
    """
    if node and not _NODE.fullmatch(node):
        raise UsageError(
            f"{node!r:.60} cannot be the name of a node.",
            next_step="Use letters, digits, '.', '_' and '-'.",
        )
    place = StorageFolder(url, kept=_KEPT)
    if catalogue_version(place) is None:
        place.write(MARKER, f'{{"version": {VERSION}}}\n'.encode())
    whole, broken = _known(url, place)
    groups: dict[tuple[str, date], list[_New]] = defaultdict(list)
    refused: list[tuple[Path, str]] = []
    known = 0
    for number, path in enumerate(paths):
        report(path.name, 0.1 * number / len(paths))
        try:
            new = _look_at(path, node, day)
        except StallwardError as error:
            refused.append((path, str(error)))
            continue
        if new.sha256 in whole:
            known += 1
            continue
        whole.add(new.sha256)
        groups[new.node, new.day].append(new)
    batches = [
        recordings[k : k + MOST_IN_A_BATCH]
        for recordings in groups.values()
        for k in range(0, len(recordings), MOST_IN_A_BATCH)
    ]
    stored_bytes = 0
    for number, batch in enumerate(batches):
        report(f"{batch[0].node}, {batch[0].day}", 0.1 + 0.9 * number / len(batches))
        stored_bytes += _write_batch(place, batch)
        _forget(place, broken, batch)
    report("done", 1.0)
    return Added(
        added=tuple(new.folder.name for batch in batches for new in batch),
        known=known,
        refused=tuple(refused),
        stored_bytes=stored_bytes,
    )


def _look_at(path: Path, node: str, day: date | None) -> _New:
    """Where a recording belongs; it is read as a whole, so that only good ones are added.

    Raises:
        RecordingError: If it cannot be read, or where it belongs is not known.
    """
    folder = RecordingFolder.open(path)
    recording = folder.load()
    if not len(recording.ticks["time_s"]):
        raise RecordingError(f"{path} has no tick.", next_step="Leave it out.")
    name = folder.node or node
    if not _NODE.fullmatch(name):
        raise RecordingError(
            f"{path} does not say which node it is of.", next_step="Name the node with --node."
        )
    wall = recording.ticks.get("wall_time_s")
    first = pa.table({} if wall is None else {"wall_time_s": wall[:1]})
    started = started_at(first)
    if started is None and day is not None:
        started = datetime.combine(day, time(), UTC)
    if started is None:
        raise RecordingError(
            f"The ticks of {path} have no wall time: `stallward record SCENARIO` leaves it out.",
            next_step="Name its day with --day.",
        )
    return _New(folder=folder, sha256=folder.sha256(), node=name, started=started)


def _known(url: str, place: StorageFolder) -> tuple[set[str], dict[str, set[str]]]:
    """The digests in the catalogue, and for each file of runs those whose data is gone."""
    files = set(place.names())
    whole: set[str] = set()
    broken: dict[str, set[str]] = defaultdict(set)
    columns = ("sha256", "batch", "node", "day", "started")
    for row in Catalogue(url).runs(columns).to_pylist():
        batch = f"{partition_of(row['node'], row['day'])}/{row['batch']}"
        if all(f"{table}/{batch}" in files for table in TABLES):
            whole.add(row["sha256"])
        else:
            broken[batch].add(row["sha256"])
    return whole, broken


def _forget(place: StorageFolder, broken: Mapping[str, set[str]], batch: Sequence[_New]) -> None:
    """Remove rows whose data was gone, now that the recordings are in another batch."""
    digests = {new.sha256 for new in batch}
    for before, lost in broken.items():
        if not lost & digests or before == _batch_file(batch):
            continue
        name = f"{RUNS}/{before}"
        with place.errors("read"), place.system.open(place.place(name)) as file:
            rows = pq.read_table(file)
        left = [digest not in digests for digest in rows["sha256"].to_pylist()]
        if any(left):
            place.write(name, _parquet_bytes(rows.filter(pa.array(left))))
        else:
            place.remove(name)


def _write_batch(place: StorageFolder, batch: Sequence[_New]) -> int:
    """Write the files of a batch, ``runs`` last; returns their size."""
    file = _batch_file(batch)
    rows = [_row(new, Path(file).name, number) for number, new in enumerate(batch)]
    stored_bytes = 0
    for table in TABLES:
        with tempfile.TemporaryDirectory(prefix="stallward-catalogue-") as building:
            built = Path(building) / "table.parquet"
            _build(built, table, batch, rows)
            content = built.read_bytes()
        place.write(f"{table}/{file}", content)
        stored_bytes += len(content)
    content = _parquet_bytes(pa.Table.from_pylist(rows, schema=RUN_COLUMNS))
    place.write(f"{RUNS}/{file}", content)
    return stored_bytes + len(content)


def _batch_file(batch: Sequence[_New]) -> str:
    """The file of a batch in each dataset, named by what it holds."""
    digest = hashlib.sha256("".join(new.sha256 for new in batch).encode()).hexdigest()
    return f"{partition_of(batch[0].node, batch[0].day)}/{digest[:16]}.parquet"


def _row(new: _New, file: str, number: int) -> dict[str, Any]:
    run = new.folder.run()
    return {
        **_names(new),
        "sha256": new.sha256,
        "batch": file,
        "row": number,
        "seed": run.seed,
        "started": new.started,
        "length_s": run.end_s - run.start_s,
        "choices": None,
        "oom_kills": run.oom_kills,
        "stored_bytes": 0,
        "run_json": (new.folder.path / "run.json").read_text(encoding="utf-8"),
    }


def _names(new: _New) -> dict[str, str]:
    folder = new.folder
    values = (folder.name, folder.scenario, folder.condition, folder.arm)
    return dict(zip(NAMED, values, strict=True))


def _build(built: Path, table: str, batch: Sequence[_New], rows: Sequence[dict[str, Any]]) -> None:
    """Write one table of a batch, a recording at a time, and note in ``rows`` where each is."""
    schema = pa.unify_schemas(
        [_stored(new, table, rows=False).schema for new in batch], promote_options="permissive"
    )
    options = parquet_options(schema, (*NAMED, "wall_time_us"))
    groups = 0
    with pq.ParquetWriter(built, schema, **options) as writer:
        for new, row in zip(batch, rows, strict=True):
            stored = _stored(new, table)
            if table == "actions":
                row["choices"] = choices_of(stored)
            if table != "actions":
                row[table] = len(stored)
            row[f"{table}_row_group"] = groups if len(stored) else None
            if len(stored):
                lacking = [f for f in schema if f.name not in stored.column_names]
                for field in lacking:
                    stored = stored.append_column(field, pa.nulls(len(stored), field.type))
                whole = stored.select(schema.names).cast(schema).combine_chunks()
                writer.write_table(whole, row_group_size=max(len(whole), 1))
                groups += 1
    metadata = pq.read_metadata(built)
    for row in rows:
        group = row[f"{table}_row_group"]
        if group is not None:
            columns = metadata.row_group(group)
            row["stored_bytes"] += sum(
                columns.column(k).total_compressed_size for k in range(metadata.num_columns)
            )


def _stored(new: _New, table: str, *, rows: bool = True) -> pa.Table:
    """A table of a recording as it is stored in a catalogue, or only its columns."""
    file = new.folder.path / f"{table}.parquet"
    stored = in_whole_units(
        pq.read_table(file, page_checksum_verification=True)
        if rows
        else pq.read_schema(file).empty_table()
    )
    for name, value in reversed(_names(new).items()):
        stored = stored.add_column(0, name, pa.array([value] * len(stored), pa.string()))
    return stored


def _parquet_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **parquet_options(table.schema, NAMED))
    content: bytes = sink.getvalue().to_pybytes()
    return content
