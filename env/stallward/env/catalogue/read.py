"""Reads catalogues: finds recordings by their rows, and loads one when it is needed."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.dataset as ds

from stallward.env.catalogue.files import (
    AGAIN,
    MARKER,
    NAMED,
    PARTITIONING,
    RUN_COLUMNS,
    RUNS,
    catalogue_version,
    parquet_file,
    partition_of,
    reading,
    storage_of,
)
from stallward.env.errors import CatalogueError
from stallward.env.recording.recording import NEEDED, OF_TICKS, TABLES, Recording, recording_of
from stallward.env.recording.run_info import Condition, RunInfo, run_of
from stallward.env.recording.stored import Selection
from stallward.env.recording.tables import Column, check_columns, columns_of

# ---------- What a catalogue holds, in a table

_KINDS: Final = ("node", "scenario", "condition", "arm")
HEADERS: Final = (*_KINDS, "recordings", "hours", "MB", "first day", "last day")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedKind:
    """The recordings of one arm and condition in one scenario of one node."""

    node: str
    scenario: str
    condition: str
    arm: str
    recordings: int
    length_s: float
    stored_bytes: int
    first_day: str
    last_day: str


def summarise(url: str, selection: Selection | None = None) -> list[RecordedKind]:
    """Sum up the selected recordings of a catalogue; only their rows are read.

    Raises:
        CatalogueError: If there is none, or it is damaged or of another version.
        StorageError: If the storage cannot be read.
    """
    measured = ("sha256", "length_s", "stored_bytes", "day", "started")
    rows = Catalogue(url).runs((*_KINDS, *measured), selection).to_pylist()
    once = {row["sha256"]: row for row in rows}.values()
    kinds = sorted({tuple(row[name] for name in _KINDS) for row in once})
    summed = []
    for kind in kinds:
        mine = [row for row in once if tuple(row[name] for name in _KINDS) == kind]
        summed.append(
            RecordedKind(
                **dict(zip(_KINDS, kind, strict=True)),
                recordings=len(mine),
                length_s=sum(row["length_s"] for row in mine),
                stored_bytes=sum(row["stored_bytes"] for row in mine),
                first_day=f"{min(row['day'] for row in mine)}",
                last_day=f"{max(row['day'] for row in mine)}",
            )
        )
    return summed


def summary_rows(kinds: Sequence[RecordedKind]) -> list[tuple[str, ...]]:
    """The kinds as table rows with the columns :data:`HEADERS`."""
    return [
        (
            one.node,
            one.scenario,
            one.condition,
            one.arm,
            f"{one.recordings}",
            f"{one.length_s / 3600.0:.2f}",
            f"{one.stored_bytes / 1e6:.1f}",
            one.first_day,
            one.last_day,
        )
        for one in kinds
    ]


_RUNS_SCHEMA: Final = pa.unify_schemas([RUN_COLUMNS, PARTITIONING.schema])
_LOOKED_AT: Final = (
    *NAMED, "sha256", "batch", "row", "oom_kills", "requests", "choices", "started", "node", "day",
    *(f"{table}_row_group" for table in TABLES),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueRecording:
    """A recording in a catalogue."""

    url: str
    batch: str
    """Partition and name of the files that hold it."""
    row: int
    """Its row in the batch's file of runs."""
    row_groups: tuple[int | None, ...]
    """Its row group in each of the tables; ``None`` where it has no rows."""
    name: str
    digest: str
    scenario: str
    condition: Condition
    arm: str
    oom_kills: int
    request_count: int
    choice_count: int | None

    @property
    def files(self) -> tuple[Path, ...]:
        """The catalogue, if it is on this machine."""
        local = storage_of(self.url).local
        return () if local is None else (local,)

    def requests(self) -> int:
        """How many requests it has."""
        return self.request_count

    def choices(self) -> int | None:
        """How many choices an action with a propensity has; ``None`` without propensities."""
        return self.choice_count

    def sha256(self) -> str:
        """The digest of the files that it was added from."""
        return self.digest

    def run(self) -> RunInfo:
        """What was run.

        Raises:
            RecordingError: If it is of another version.
            StorageError: If the storage cannot be read.
        """
        text = _run_texts(self.url, self.batch)[self.row]
        return run_of(json.loads(text), f"{self.name} in {self.url}", AGAIN)

    def load(self) -> Recording:
        """Load it.

        Raises:
            RecordingError: If its part of a file is missing or damaged.
            StorageError: If the storage cannot be read.
        """
        tables = {
            table: self._columns(table, group)
            for table, group in zip(TABLES, self.row_groups, strict=True)
        }
        return recording_of(Path(self.name), self.run(), tables)

    def _columns(self, table: str, group: int | None) -> dict[str, Column]:
        place = storage_of(self.url).place(f"{table}/{self.batch}")
        with reading(self.url, place), parquet_file(self.url, place) as file:
            if group is None:
                stored = file.schema_arrow.empty_table().select(NEEDED[table])
            else:
                stored = _own(file.read_row_group(group))
        columns = columns_of(stored, ticks=table in OF_TICKS)
        check_columns(columns, NEEDED[table], place)
        return columns


class Catalogue:
    """A catalogue that exists.

    Args:
        url: Its place: a path, or a URL of fsspec.

    Raises:
        CatalogueError: If there is none, or one of another version.
        StorageError: If the storage cannot be read.
    """

    def __init__(self, url: str) -> None:
        self.url, self._folder = url, storage_of(url)
        version = catalogue_version(self._folder)
        if version is None:
            raise CatalogueError(
                f"{url} is no catalogue: it has no {MARKER}.",
                next_step="Make one with `stallward catalogue add DIR --to URL`.",
            )

    def recordings(self, selection: Selection | None = None) -> list[CatalogueRecording]:
        """The recordings that are selected, in the order of time; each one once.

        Only the files of the selected nodes and days are read, and no ticks.

        Raises:
            CatalogueError: If a file of runs is damaged.
            StorageError: If the storage cannot be read.
        """
        seen: set[str] = set()
        found = []
        for row in self.runs(_LOOKED_AT, selection).to_pylist():
            if row["sha256"] in seen:  # two commands added it at one time
                continue
            seen.add(row["sha256"])
            found.append(
                CatalogueRecording(
                    url=self.url,
                    batch=f"{partition_of(row['node'], row['day'])}/{row['batch']}",
                    row=row["row"],
                    row_groups=tuple(row[f"{name}_row_group"] for name in TABLES),
                    name=row["recording"],
                    digest=row["sha256"],
                    scenario=row["scenario"],
                    condition=row["condition"],
                    arm=row["arm"],
                    oom_kills=row["oom_kills"],
                    request_count=row["requests"],
                    choice_count=row["choices"],
                )
            )
        return found

    def runs(self, columns: Sequence[str], selection: Selection | None = None) -> pa.Table:
        """Some columns of the selected rows of runs, by their time.

        Raises:
            CatalogueError: If a file of runs is damaged.
            StorageError: If the storage cannot be read.
        """
        if not self._folder.names(RUNS):
            return _RUNS_SCHEMA.empty_table().select(columns)
        with reading(self.url, self._folder.place(RUNS), CatalogueError):
            table = self.dataset(RUNS).to_table(
                columns=list(columns), filter=_expression(selection or Selection())
            )
        return table.sort_by([("started", "ascending"), ("sha256", "ascending")])

    def dataset(self, table: str) -> ds.Dataset:
        """One of the datasets, ``runs`` or a table of recordings, for queries by pyarrow.

        Args:
            table: ``runs``, ``ticks``, ``actions``, ``requests`` or ``units``.

        Raises:
            CatalogueError: If a file of it is damaged.
            StorageError: If the storage cannot be read.
        """
        place = self._folder.place(table)
        with reading(self.url, place, CatalogueError):
            found = ds.dataset(
                place,
                format="parquet",
                filesystem=self._folder.system,
                partitioning=PARTITIONING,
                schema=_RUNS_SCHEMA if table == RUNS else None,
            )
            if table == RUNS:
                return found
            # Recordings differ in their columns, and a dataset has those of its first file.
            every = [part.physical_schema for part in found.get_fragments()]
            unified = pa.unify_schemas([*every, PARTITIONING.schema], promote_options="permissive")
            return found.replace_schema(unified)


def _expression(selection: Selection) -> ds.Expression:
    """The filter of a selection; that of nodes and days leaves out whole folders."""
    chosen = ds.scalar(True)
    for name in ("scenario", "arm", "node"):
        wanted = getattr(selection, name)
        if wanted:
            chosen &= ds.field(name) == wanted
    if selection.first_day is not None:
        chosen &= ds.field("day") >= pa.scalar(selection.first_day, pa.date32())
    if selection.last_day is not None:
        chosen &= ds.field("day") <= pa.scalar(selection.last_day, pa.date32())
    return chosen


@functools.lru_cache(maxsize=16)
def _run_texts(url: str, batch: str) -> dict[int, str]:
    """The ``run.json`` of each row of a batch."""
    place = storage_of(url).place(f"{RUNS}/{batch}")
    with reading(url, place), parquet_file(url, place) as file:
        rows = file.read(columns=["row", "run_json"]).to_pylist()
    return {row["row"]: row["run_json"] for row in rows}


def _own(table: pa.Table) -> pa.Table:
    """The columns that a recording itself has: in a batch it has those of the others as well."""
    kept = [
        name
        for name in table.column_names
        if name not in NAMED and table[name].null_count < len(table)
    ]
    return table.select(kept)
