"""Recordings: what one run left behind, as a directory every tool can open.

A recording is written whole or not at all. Its files:

- ``run.json``: what was run, where and with what (:class:`RunInfo`);
- ``ticks.parquet``: one row a tick, every raw signal with its unit in the name;
- ``actions.parquet``: one row a tick: what was desired, granted and applied, and with what
  probability;
- ``requests.parquet``: one row a request of the protected application;
- ``units.parquet``: cumulative work units of every background slot.

Times are CLOCK_MONOTONIC. Columns that were absent throughout are left out of the files.
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

_LEAST_FOR_PACE: Final = 20
_QUIET_S: Final = 0.5
"""Random arrivals leave gaps; a log that is silent for longer ended before its requests did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """Requests of the protected application, by scheduled time; arrays of one length."""

    scheduled_s: NDArray[np.float64]
    start_s: NDArray[np.float64]
    end_s: NDArray[np.float64]
    """When the answer came, or when waiting for it ended if ``ok`` is false."""
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

    def with_unanswered(self, end_s: float, waited_until_s: float) -> Requests:
        """These and those before ``end_s`` of which a log of answers says nothing.

        They are put evenly behind the last one, at the pace of the others. A log that ends
        earlier than two requests before the end ends because answers did.

        Args:
            end_s: Until when requests were sent.
            waited_until_s: How long answers were waited for.
        """
        count = len(self.scheduled_s)
        if count < _LEAST_FOR_PACE:
            return self
        pace_s = float(self.scheduled_s[-1] - self.scheduled_s[0]) / (count - 1)
        gap_s = end_s - float(self.scheduled_s[-1])
        if gap_s < max(_QUIET_S, 2.0 * pace_s) or pace_s <= 0.0:
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
        """Mean units/s of ``slot`` between two times, or ``None`` without readings of it."""
        mine = self.slot == slot
        if not mine.any() or end_s <= start_s:
            return None
        done = np.interp([start_s, end_s], self.time_s[mine], self.units[mine])
        return float((done[1] - done[0]) / (end_s - start_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One recording, loaded.

    Attributes:
        path: Its directory.
        run: What was run.
        ticks: Column name -> one value a tick; absent values are NaN (float64) throughout.
        actions: Column name -> one value a tick.
        requests: Every request, burn-in included.
        units: Every reading, burn-in included.
    """

    path: Path
    run: RunInfo
    ticks: Mapping[str, Column]
    actions: Mapping[str, Column]
    requests: Requests
    units: Units

    def tick(self, name: str) -> NDArray[np.float64]:
        """A numeric tick column; all NaN if it was absent throughout."""
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
    """Write a recording whole, or leave nothing.

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
    requests = read_table(
        path / "requests.parquet", ("scheduled_us", "wait_us", "sojourn_us", "ok")
    )
    units = read_table(path / "units.parquet", ("slot", "time_us", "units"))
    scheduled_s = requests["scheduled_us"] * 1e-6
    return Recording(
        path=path,
        run=run,
        ticks=read_table(path / "ticks.parquet", ("sequence", "time_s"), ticks=True),
        actions=read_table(path / "actions.parquet", ("sequence", "time_s"), ticks=True),
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
        # Spans instead of times: small numbers, which delta encoding makes smaller still.
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
