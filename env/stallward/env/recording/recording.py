"""Recordings: the directory of files that one run leaves behind.

A recording is written whole or not at all. Its files:

- ``run.json``: what was run, where and with which versions (:class:`RunInfo`);
- ``ticks.parquet``: one row for each tick, with every raw signal; names end in the unit;
- ``actions.parquet``: one row for each tick: what was desired, granted and applied, and the
  propensity;
- ``requests.parquet``: one row for each request of the protected application;
- ``units.parquet``: cumulative work units of every background slot.

Times are CLOCK_MONOTONIC. Columns without any value are left out of the files.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stallward.env.errors import RecordingError
from stallward.env.recording.columns import action_columns, tick_columns
from stallward.env.recording.run_info import RunInfo, load_run
from stallward.env.recording.tables import Column, read_table, write_table
from stallward.proto.v1 import stallward_pb2 as pb

NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "requests": ("scheduled_us", "wait_us", "sojourn_us", "ok"),
    "units": ("slot", "time_us", "units"),
    "ticks": ("sequence", "time_s"),
    "actions": ("sequence", "time_s"),
}
"""The columns that each table has, as they are read back."""
TABLES: Final = tuple(NEEDED)
"""The tables of a recording, each a file."""
OF_TICKS: Final = ("ticks", "actions")
"""The tables with a row for each tick."""
_LEAST_FOR_PACE: Final = 20
"""With fewer requests their mean interval is not known well enough."""
_LONGEST_GAP_S: Final = 0.5
"""Random arrivals leave gaps, but a log with a longer gap at its end lacks requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """Requests of the protected application, by scheduled time; arrays of one length."""

    scheduled_s: NDArray[np.float64]
    start_s: NDArray[np.float64]
    end_s: NDArray[np.float64]
    """When the answer came or, if ``ok`` is false, when the wait for it ended."""
    ok: NDArray[np.bool_]

    @classmethod
    def empty(cls) -> Requests:
        """No requests."""
        none = np.zeros(0)
        return cls(scheduled_s=none, start_s=none, end_s=none, ok=np.zeros(0, dtype=bool))

    def where(self, mask: NDArray[np.bool_]) -> Requests:
        """The requests for which ``mask`` is true."""
        return Requests(
            scheduled_s=self.scheduled_s[mask],
            start_s=self.start_s[mask],
            end_s=self.end_s[mask],
            ok=self.ok[mask],
        )

    def scheduled_in(self, start_s: float, end_s: float) -> Requests:
        """The requests that were scheduled from ``start_s`` and before ``end_s``."""
        return self.where((self.scheduled_s >= start_s) & (self.scheduled_s < end_s))

    def with_unanswered(self, end_s: float, waited_until_s: float) -> Requests:
        """Add the requests before ``end_s`` that were not answered, which a log of answers lacks.

        They follow the last answered one at the mean interval. They are added only if the log
        ends more than two intervals, and half a second, before ``end_s``.

        Args:
            end_s: When the last requests were sent.
            waited_until_s: When the wait for answers ended.
        """
        count = len(self.scheduled_s)
        if count < _LEAST_FOR_PACE:
            return self
        pace_s = float(self.scheduled_s[-1] - self.scheduled_s[0]) / (count - 1)
        gap_s = end_s - float(self.scheduled_s[-1])
        if gap_s < max(_LONGEST_GAP_S, 2.0 * pace_s) or pace_s <= 0.0:
            return self
        missing = self.scheduled_s[-1] + np.arange(pace_s, gap_s, pace_s)
        return Requests(
            scheduled_s=np.append(self.scheduled_s, missing),
            start_s=np.append(self.start_s, missing),
            end_s=np.append(self.end_s, np.full(len(missing), waited_until_s)),
            ok=np.append(self.ok, np.zeros(len(missing), dtype=bool)),
        )

    @property
    def sojourn_ms(self) -> NDArray[np.float64]:
        """Milliseconds from the scheduled arrival to the end."""
        return (self.end_s - self.scheduled_s) * 1e3


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """Work units of the background; arrays of one length, ordered by slot and time."""

    slot: NDArray[np.int32]
    time_s: NDArray[np.float64]
    units: NDArray[np.float64]
    """Cumulative since the group started."""

    @classmethod
    def empty(cls) -> Units:
        """No units."""
        return cls(slot=np.zeros(0, dtype=np.int32), time_s=np.zeros(0), units=np.zeros(0))

    def rate_per_s(self, slot: int, start_s: float, end_s: float) -> float | None:
        """Mean units/s of ``slot`` between two times; ``None`` if the slot has no readings."""
        mine = self.slot == slot
        if not mine.any() or end_s <= start_s:
            return None
        done = np.interp([start_s, end_s], self.time_s[mine], self.units[mine])
        return float((done[1] - done[0]) / (end_s - start_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One recording, loaded."""

    path: Path
    """The recording's directory."""
    run: RunInfo
    """What was run."""
    ticks: Mapping[str, Column]
    """Columns by name, with a value for each tick. A column with absent values is float64 with
    NaN."""
    actions: Mapping[str, Column]
    """Columns by name, with a value for each tick."""
    requests: Requests
    """Every request, burn-in included."""
    units: Units
    """Every reading, burn-in included."""

    def tick(self, name: str) -> NDArray[np.float64]:
        """A numeric tick column; all NaN if the recording lacks it."""
        column = self.ticks.get(name)
        if column is None:
            return np.full(len(self.ticks["time_s"]), np.nan)
        return np.asarray(column, dtype=np.float64)


def write_recording(
    path: Path,
    *,
    run: RunInfo,
    ticks: Iterable[pb.TickRecord],
    requests: Requests,
    units: Units,
) -> None:
    """Write a recording as a whole, or nothing.

    Raises:
        RecordingError: If ``path`` exists already or cannot be written.
    """
    if path.exists():
        raise RecordingError(f"{path} exists already.", next_step="Choose another directory.")
    records = list(ticks)
    building = path.with_name(f".{path.name}.{os.getpid()}.partial")
    shutil.rmtree(building, ignore_errors=True)
    try:
        building.mkdir(parents=True)
        write_table(building / "ticks.parquet", tick_columns(records))
        write_table(building / "actions.parquet", action_columns(records))
        write_table(building / "requests.parquet", _request_columns(requests))
        write_table(building / "units.parquet", _unit_columns(units))
        text = json.dumps(asdict(run), indent=1, sort_keys=True, default=str)
        (building / "run.json").write_text(text + "\n", encoding="utf-8")
        building.rename(path)
    except OSError as error:
        raise RecordingError(
            f"The recording {path} could not be written: {error}.",
            next_step="Check free space and permissions.",
        ) from error
    finally:
        shutil.rmtree(building, ignore_errors=True)


def load_recording(path: Path) -> Recording:
    """Open a recording.

    Raises:
        RecordingError: If it is missing, not a recording, truncated, or of another version.
    """
    run = load_run(path)
    return recording_of(
        path,
        run,
        {
            table: read_table(path / f"{table}.parquet", NEEDED[table], ticks=table in OF_TICKS)
            for table in TABLES
        },
    )


def recording_of(
    path: Path, run: RunInfo, tables: Mapping[str, Mapping[str, Column]]
) -> Recording:
    """Make a recording of its tables as they were read back.

    Args:
        path: Where it is.
        run: What was run.
        tables: The columns of each of :data:`TABLES`.
    """
    requests, units = tables["requests"], tables["units"]
    scheduled_s = requests["scheduled_us"] * 1e-6
    return Recording(
        path=path,
        run=run,
        ticks=tables["ticks"],
        actions=tables["actions"],
        requests=Requests(
            scheduled_s=scheduled_s,
            start_s=scheduled_s + requests["wait_us"] * 1e-6,
            end_s=scheduled_s + requests["sojourn_us"] * 1e-6,
            ok=requests["ok"].astype(bool),
        ),
        units=Units(
            slot=units["slot"].astype(np.int32),
            time_s=units["time_us"] * 1e-6,
            units=units["units"].astype(np.float64),
        ),
    )


def _request_columns(requests: Requests) -> dict[str, pa.Array]:
    order = np.argsort(requests.scheduled_s, kind="stable")
    scheduled_us = np.rint(requests.scheduled_s[order] * 1e6).astype(np.int64)

    def after(times_s: NDArray[np.float64]) -> pa.Array:
        # Time since the arrival instead of the time: small numbers, which encode well.
        return pa.array(np.rint(times_s[order] * 1e6).astype(np.int64) - scheduled_us)

    return {
        "scheduled_us": pa.array(scheduled_us),
        "wait_us": after(requests.start_s),
        "sojourn_us": after(requests.end_s),
        "ok": pa.array(requests.ok[order]),
    }


def _unit_columns(units: Units) -> dict[str, pa.Array]:
    order = np.lexsort((units.time_s, units.slot))
    return {
        "slot": pa.array(units.slot[order].astype(np.int32)),
        "time_us": pa.array(np.rint(units.time_s[order] * 1e6).astype(np.int64)),
        "units": pa.array(units.units[order].astype(np.float64)),
    }
