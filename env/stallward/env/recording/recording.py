"""Recordings: the directory of files that one run leaves behind.

A recording is written whole or not at all. Its files:

- ``run.json``: what was run, where and with which versions (:class:`RunInfo`);
- ``ticks.parquet``: one row for each tick, with every raw signal; names end in the unit; those of
  several protected applications are in :mod:`stallward.env.recording.applications`;
- ``actions.parquet``: one row for each tick: what was desired, granted and applied, and the
  propensity;
- ``requests.parquet``: one row for each request of the protected application;
- ``requests-NAME.parquet``: the same for each further application, where there are several;
- ``units.parquet``: cumulative work units of every background slot.

Times are CLOCK_MONOTONIC. Columns without any value are left out of the files.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from google.protobuf.descriptor import FieldDescriptor
from numpy.typing import NDArray

from stallward.actuator.record.reasons_text import reason_notes
from stallward.actuator.record.wire import REASONS
from stallward.env.errors import RecordingError
from stallward.env.recording.applications import application_columns
from stallward.env.recording.run_info import RunInfo, load_run
from stallward.env.recording.tables import Column, read_table, write_table
from stallward.proto.v1 import stallward_pb2 as pb

# ---------- Turns tick records into columns
# A column is named after the field in ``stallward.proto.v1``, which ends in its unit. Its prefix is
# ``zone_``, ``protected_``, ``slot0_`` ... or ``node_``. The lever states of a slot are
# ``slot0_state_*``, and the timings of the tick are ``timing_*``.

_SKIPPED: Final = frozenset({"psi", "name", "new_requests"})
"""Fields without a column of their own; new requests are in the table of the requests."""
_SLOT_LEVERS: Final = ("limit_bytes", "io_max_bytes_per_s", "cpu_weight")
"""The settings of a slot's levers that are numbers."""
_FLOATS: Final = (FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FLOAT)


def tick_columns(records: Sequence[pb.TickRecord]) -> dict[str, pa.Array]:
    """Every raw signal, lever state and timing; one row for each of ``records``."""
    columns: dict[str, pa.Array] = {
        "sequence": pa.array([r.sequence for r in records], pa.int64()),
        "time_s": pa.array([r.time_s for r in records], pa.float64()),
        "wall_time_s": pa.array([r.wall_time_s for r in records], pa.float64()),
    }
    slots = max((len(r.sample.slots) for r in records), default=0)
    sections: list[tuple[str, Callable[[pb.TickRecord], Any]]] = [
        ("node_", lambda r: r.sample.node),
        ("zone_", lambda r: r.sample.zone),
        ("protected_", lambda r: r.sample.protected),
        ("latency_", lambda r: r.sample.latency if r.sample.HasField("latency") else None),
        ("timing_", lambda r: r.timings),
    ]
    for i in range(slots):
        groups = [_item(r.sample.slots, i) for r in records]
        columns.update(_message_columns(f"slot{i}_", groups))
        states = [_item(r.sample.slot_states, i) for r in records]
        columns.update(_message_columns(f"slot{i}_state_", states))
        columns.update(_process_columns(records, i))
    for prefix, part in sections:
        columns.update(_message_columns(prefix, [part(r) for r in records]))
    columns.update(application_columns(records))
    columns["profile"] = pa.array([r.sample.profile for r in records], pa.string())
    return _present(columns)


def action_columns(records: Sequence[pb.TickRecord]) -> dict[str, pa.Array]:
    """What was desired, granted and applied, with the propensity; one row for each tick."""
    columns: dict[str, pa.Array] = {
        "sequence": pa.array([r.sequence for r in records], pa.int64()),
        "time_s": pa.array([r.time_s for r in records], pa.float64()),
        "controller": pa.array([r.decision.controller for r in records], pa.string()),
        "reason": pa.array([r.decision.reason for r in records], pa.string()),
        "action": pa.array([_action_text(r.decision) for r in records], pa.string()),
        "propensity": _optional(records, "propensity"),
        "score": _optional(records, "score"),
        "mode": pa.array([pb.Mode.Name(r.mode) for r in records], pa.string()),
        "fallback": pa.array([r.fallback for r in records], pa.bool_()),
        "guard_notes": pa.array([_notes_text(r) for r in records], pa.string()),
        "applied": pa.array([_applied_text(r) for r in records], pa.string()),
    }
    slots = max((len(r.sample.slots) for r in records), default=0)
    for kind in ("desired", "granted"):
        states = [r.decision.desired if kind == "desired" else r.granted for r in records]
        columns[f"{kind}_profile"] = pa.array([s.tuning.name for s in states], pa.string())
        for setting in ("swappiness", "protected_swappiness"):
            values = [_field(s.tuning, setting) for s in states]
            columns[f"{kind}_{setting}"] = pa.array(values, pa.int64())
        for setting in ("dirty_background_ratio", "dirty_ratio"):
            values = [_field(s.tuning, setting) for s in states]
            columns[f"{kind}_{setting}"] = pa.array(values, pa.float64())
        low = [_field(s, "protected_low_bytes") for s in states]
        columns[f"{kind}_protected_low_bytes"] = pa.array(low, pa.int64())
        # Null rather than false, so that recordings without it have no such column.
        willneed = [s.protected_willneed or None for s in states]
        columns[f"{kind}_protected_willneed"] = pa.array(willneed, pa.bool_())
        files = [_file_pages_text(s) for s in states]
        columns[f"{kind}_file_pages"] = pa.array(files, pa.string())
        stopped = [",".join(str(p.pid) for p in s.stopped) for s in states]
        columns[f"{kind}_stopped_pids"] = pa.array(stopped, pa.string())
        for i in range(slots):
            slot_states = [_item(s.slots, i) for s in states]
            columns[f"{kind}_slot{i}_paused"] = pa.array(
                [bool(slot is not None and slot.paused) for slot in slot_states], pa.bool_()
            )
            for setting in _SLOT_LEVERS:
                values = [_field(slot, setting) for slot in slot_states]
                columns[f"{kind}_slot{i}_{setting}"] = pa.array(values, pa.int64())
    return _present(columns)


def _file_pages_text(state: pb.DesiredState) -> str | None:
    """What is done to file pages, as ``clear:largest-file``; ``None`` for nothing."""
    if not state.HasField("file_pages"):
        return None
    return f"{state.file_pages.action}:{state.file_pages.victim}"


def _present(columns: dict[str, pa.Array]) -> dict[str, pa.Array]:
    """Leave out the columns that hold no value at all."""
    always = ("sequence", "time_s")
    return {
        name: column
        for name, column in columns.items()
        if name in always or column.null_count < len(column)
    }


def _item(items: Any, index: int) -> Any:
    return items[index] if index < len(items) else None


def _leaves(descriptor: Any) -> Iterator[FieldDescriptor]:
    for item in descriptor.fields:
        if item.name not in _SKIPPED:
            yield item


def _message_columns(prefix: str, messages: Sequence[Any]) -> dict[str, pa.Array]:
    """One column for each scalar field; ``messages`` may hold ``None`` for an absent message."""
    example = next((m for m in messages if m is not None), None)
    if example is None:
        return {}
    columns = {
        prefix + item.name: pa.array([_field(m, item.name) for m in messages], _type(item))
        for item in _leaves(example.DESCRIPTOR)
    }
    if "psi" in example.DESCRIPTOR.fields_by_name:
        columns.update(
            _message_columns(prefix + "psi_", [None if m is None else m.psi for m in messages])
        )
    return columns


def _field(message: Any, name: str) -> Any:
    """The value of a field; ``None`` where the message or an optional field is absent."""
    if message is None:
        return None
    descriptor = message.DESCRIPTOR.fields_by_name[name]
    if descriptor.has_presence and not message.HasField(name):
        return None
    return getattr(message, name)


def _type(item: FieldDescriptor) -> pa.DataType:
    if item.type == FieldDescriptor.TYPE_BOOL:
        return pa.bool_()
    if item.type in _FLOATS:
        return pa.float32()
    return pa.int64()


def _optional(records: Sequence[pb.TickRecord], name: str) -> pa.Array:
    return pa.array([_field(r.decision, name) for r in records], pa.float64())


def _action_text(decision: pb.Decision) -> str:
    return ",".join(str(value) for value in decision.action)


def _notes_text(record: pb.TickRecord) -> str:
    """The reasons in a tick record as sentences; empty if there are none."""
    return "; ".join(reason_notes(REASONS.from_wire(record.reasons)))


def _applied_text(record: pb.TickRecord) -> str:
    """The changes that levers were asked for, as JSON; empty if there are none."""
    if not record.applied:
        return ""
    return json.dumps(
        [[a.lever, a.value, a.ok, a.error, round(a.took_ms, 3)] for a in record.applied]
    )


def _process_columns(records: Sequence[pb.TickRecord], slot: int) -> dict[str, pa.Array]:
    """Counts of a slot's processes and stopped processes, and its highest OOM score.

    They are null where the processes were not read.
    """
    counts: list[int | None] = []
    stopped: list[int | None] = []
    scores: list[int | None] = []
    for record in records:
        processes = [p for p in record.sample.processes if p.slot == slot]
        known = record.sample.processes_known
        counts.append(len(processes) if known else None)
        stopped.append(sum(p.stopped for p in processes) if known else None)
        scores.append(max((p.oom_score for p in processes), default=None) if known else None)
    return {
        f"slot{slot}_processes": pa.array(counts, pa.int64()),
        f"slot{slot}_stopped_processes": pa.array(stopped, pa.int64()),
        f"slot{slot}_oom_score": pa.array(scores, pa.int64()),
    }


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

    def where(self, rows: NDArray[np.bool_] | NDArray[np.intp]) -> Requests:
        """The requests for which ``rows`` is true, or those with the numbers in it."""
        return Requests(
            scheduled_s=self.scheduled_s[rows],
            start_s=self.start_s[rows],
            end_s=self.end_s[rows],
            ok=self.ok[rows],
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
    others: Mapping[str, Requests] = field(default_factory=dict)
    """Name of a further application -> every request of it."""
    units: Units
    """Every reading, burn-in included."""

    def tick(self, name: str) -> NDArray[np.float64]:
        """A numeric tick column; all NaN if the recording lacks it."""
        column = self.ticks.get(name)
        if column is None:
            return np.full(len(self.ticks["time_s"]), np.nan)
        return np.asarray(column, dtype=np.float64)

    def tick_at(self, name: str, times_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """A numeric tick column at some times: of each the latest tick, or else the first."""
        latest = np.searchsorted(self.tick("time_s"), times_s, side="right") - 1
        return np.asarray(self.tick(name)[latest.clip(0)])

    def held_s(self, from_s: float, to_s: float) -> NDArray[np.float64]:
        """How long of a span each tick is the latest: a daemon reads more often under pressure."""
        return np.asarray(np.diff(np.append(self.tick("time_s"), to_s).clip(from_s, to_s)))


def write_recording(
    path: Path,
    *,
    run: RunInfo,
    ticks: Iterable[pb.TickRecord],
    requests: Requests,
    others: Mapping[str, Requests] | None = None,
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
        for name, theirs in (others or {}).items():
            write_table(building / _file_of(name), _request_columns(theirs))
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


def load_recording(path: Path, *, several: bool = False) -> Recording:
    """Open a recording.

    Args:
        path: Its directory.
        several: Whether it may be of several protected applications.

    Raises:
        RecordingError: If it is missing, not a recording, truncated, of another version, or of
            several applications where there can be only one.
    """
    run = load_run(path)
    if not several:
        run.check_one_application(f"{path}")
    recording = recording_of(
        path,
        run,
        {
            table: read_table(path / f"{table}.parquet", NEEDED[table], ticks=table in OF_TICKS)
            for table in TABLES
        },
    )
    others = {
        name: _requests_of(read_table(path / _file_of(name), NEEDED["requests"], ticks=False))
        for name in run.other_applications
    }
    return replace(recording, others=others)


def recording_of(
    path: Path, run: RunInfo, tables: Mapping[str, Mapping[str, Column]]
) -> Recording:
    """Make a recording of its tables as they were read back.

    Args:
        path: Where it is.
        run: What was run.
        tables: The columns of each of :data:`TABLES`.
    """
    units = tables["units"]
    return Recording(
        path=path,
        run=run,
        ticks=tables["ticks"],
        actions=tables["actions"],
        requests=_requests_of(tables["requests"]),
        units=Units(
            slot=units["slot"].astype(np.int32),
            time_s=units["time_us"] * 1e-6,
            units=units["units"].astype(np.float64),
        ),
    )


def _file_of(application: str) -> str:
    """The file of the requests of a further application."""
    return f"requests-{application}.parquet"


def _requests_of(columns: Mapping[str, Column]) -> Requests:
    scheduled_s = columns["scheduled_us"] * 1e-6
    return Requests(
        scheduled_s=scheduled_s,
        start_s=scheduled_s + columns["wait_us"] * 1e-6,
        end_s=scheduled_s + columns["sojourn_us"] * 1e-6,
        ok=columns["ok"].astype(bool),
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
