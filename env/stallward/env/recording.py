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
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stallward.env.errors import RecordingError
from stallward.env.field_check import check_fields
from stallward.env.recording_columns import action_columns, tick_columns
from stallward.env.recording_tables import Column, read_table, write_table
from stallward.env.scenario import Slo
from stallward.proto.v1 import stallward_pb2 as pb

SCHEMA_VERSION: Final = 2
READABLE: Final = (1, 2)
"""Version 1 holds times and timings as floating-point numbers, version 2 as microseconds."""
Condition = Literal["alone", "together", "ample", "background"]
CONDITIONS: Final[tuple[Condition, ...]] = ("alone", "together", "ample", "background")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeInfo:
    """The machine a recording was made on."""

    kind: str
    """"v2", "hybrid" or "none"."""
    kernel: str
    cpu_count: int
    memory_total_bytes: int
    disk: str = ""
    """What is known of the disk that holds data and swap, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """What was run: the contents of ``run.json``."""

    scenario: str
    condition: Condition
    arm: str
    seed: int
    start_s: float
    """CLOCK_MONOTONIC at which the block began, burn-in included."""
    end_s: float
    burn_in_s: float
    sandbox_bytes: int
    """Memory limit of the zone in force during the run."""
    slo_ms: float
    node: NodeInfo
    request_rate_per_s: float = 0.0
    """Rate at which requests were scheduled; 0 if unknown."""
    swap_bytes: int = 0
    slot_names: tuple[str, ...] = ()
    scenario_parameters: Mapping[str, object] = field(default_factory=dict)
    """The scenario file as it was read."""
    versions: Mapping[str, str] = field(default_factory=dict)
    oom_kills: int = 0
    schema: int = SCHEMA_VERSION

    @property
    def slo_quantile(self) -> float:
        """The quantile that the scenario's target is about.

        Raises:
            RecordingError: If the recording's scenario holds none that can be.
        """
        found: Any = self.scenario_parameters
        for key in ("protected", "slo", "quantile"):
            found = found.get(key, {}) if isinstance(found, Mapping) else {}
        if not isinstance(found, int | float):
            return Slo().quantile
        if not 0.0 < found < 1.0:
            raise RecordingError(f"A recording's slo.quantile is {found!r:.80}.")
        return float(found)

    @property
    def measured_from_s(self) -> float:
        """Where the burn-in ends."""
        return self.start_s + self.burn_in_s


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


def load_run(path: Path) -> RunInfo:
    """Read only ``run.json`` of a recording.

    Raises:
        RecordingError: If it is missing, not a recording's, or of another version.
    """
    file = path / "run.json"
    again = "Record it again with `stallward record`."
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise RecordingError(
            f"{path} is not a recording: it has no run.json.",
            next_step="Give the directory that `stallward record` wrote.",
        ) from error
    except (OSError, ValueError, RecursionError) as error:  # UTF-8, JSON, endless numbers
        raise RecordingError(f"{file} cannot be read: {error}.", next_step=again) from error
    if not isinstance(data, dict) or "schema" not in data or "scenario" not in data:
        raise RecordingError(f"{file} is not a recording's run.json.", next_step=again)
    if data["schema"] not in READABLE:
        raise RecordingError(
            f"{path} has recording schema {data['schema']!r:.80}, this program reads "
            f"{' and '.join(map(str, READABLE))}.",
            next_step=again,
        )
    try:
        data["node"] = NodeInfo(**data["node"])
        data["slot_names"] = tuple(data["slot_names"])
        known = {f.name for f in fields(RunInfo)}
        run = RunInfo(**{key: value for key, value in data.items() if key in known})
        check_fields(run)
        run.slo_quantile  # noqa: B018 - refused here rather than where it is used
    except RecordingError as error:
        raise RecordingError(f"{file}: {error.cause}", next_step=again) from error
    except (KeyError, TypeError, ValueError) as error:
        raise RecordingError(
            f"{file} lacks a field, or has a wrong one: {error}.", next_step=again
        ) from error
    if run.condition not in CONDITIONS:
        raise RecordingError(f"{file} has the unknown condition {run.condition!r}.")
    return run


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
