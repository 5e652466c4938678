"""Turns tick records into columns.

A column is named after the field in ``stallward.proto.v1``, which ends in its unit. Its prefix is
``zone_``, ``protected_``, ``slot0_`` ... or ``node_``. The lever states of a slot are
``slot0_state_*``, and the timings of the tick are ``timing_*``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from google.protobuf.descriptor import FieldDescriptor

from stallward.actuator.record.reasons_text import reason_notes
from stallward.actuator.record.reasons_wire import reasons_from_wire
from stallward.proto.v1 import stallward_pb2 as pb

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
        for field in ("swappiness", "protected_swappiness"):
            values = [_field(s.tuning, field) for s in states]
            columns[f"{kind}_{field}"] = pa.array(values, pa.int64())
        for field in ("dirty_background_ratio", "dirty_ratio"):
            values = [_field(s.tuning, field) for s in states]
            columns[f"{kind}_{field}"] = pa.array(values, pa.float64())
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
            for field in _SLOT_LEVERS:
                values = [_field(slot, field) for slot in slot_states]
                columns[f"{kind}_slot{i}_{field}"] = pa.array(values, pa.int64())
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
    return "; ".join(reason_notes(reasons_from_wire(record)))


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
