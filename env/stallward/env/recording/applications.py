"""The columns of several protected applications, from tick records and back to their samples.

A column is named ``application:NAME:FIELD``: the fields of the application's group and, behind
``psi_`` and ``latency_``, of its stalls and latencies, with its target (``slo_ms``), its group's
name and whether the p95 met the target (``met``). No name of an application has a colon. Unlike
other columns they hold floating-point numbers as they are, so that the samples come back the same.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from types import UnionType
from typing import Any, Final, TypeVar, get_args, get_type_hints

import pyarrow as pa

from stallward.agent.sample import ApplicationSample, GroupSample, LatencySample, PsiTotals
from stallward.env.errors import RecordingError
from stallward.env.recording.tables import Column
from stallward.proto.v1 import stallward_pb2 as pb

_TARGET: Final = re.compile(r"application:([^:]+):slo_ms")
_NOT_KEPT: Final = frozenset({"name", "psi", "new_requests"})
"""Fields without a column of their own; new requests are in the tables of requests."""
_ARROW: Final = {int: pa.int64(), float: pa.float64(), bool: pa.bool_(), str: pa.string()}
_T = TypeVar("_T")


def _kinds(of: type) -> dict[str, type]:
    """The type of each field of a dataclass that has a column."""
    hints = get_type_hints(of)
    kinds = {}
    for one in fields(of):
        if one.name not in _NOT_KEPT:
            hint = hints[one.name]
            kinds[one.name] = get_args(hint)[0] if isinstance(hint, UnionType) else hint
    return kinds


_PARTS: Final = (
    ("", GroupSample, _kinds(GroupSample)),
    ("psi_", PsiTotals, _kinds(PsiTotals)),
    ("latency_", LatencySample, _kinds(LatencySample)),
)
"""The parts of an application's sample: the prefix of their fields, and the types of these."""


def application_columns(records: Sequence[pb.TickRecord]) -> dict[str, pa.Array]:
    """The columns of each application, one row for each of ``records``; none where there is one."""
    names = dict.fromkeys(one.name for r in records for one in r.sample.applications)
    columns: dict[str, pa.Array] = {}
    for name in names:
        each = [
            next((one for one in r.sample.applications if one.name == name), None) for r in records
        ]
        values: dict[str, tuple[type, list[Any]]] = {
            "slo_ms": (float, [None if one is None else one.slo_ms for one in each]),
            "group": (str, [None if one is None else one.group.name for one in each]),
            "met": (bool, [_met(one) for one in each]),
        }
        for prefix, _, kinds in _PARTS:
            parts = [None if one is None else _part(one, prefix) for one in each]
            values |= {
                prefix + field: (kind, [_value(part, field) for part in parts])
                for field, kind in kinds.items()
            }
        for field, (kind, column) in values.items():
            columns[f"application:{name}:{field}"] = pa.array(column, _ARROW[kind])
    return columns


def _met(one: pb.ApplicationSample | None) -> bool | None:
    if one is None or not one.latency.HasField("p95_ms"):
        return None
    return one.latency.p95_ms <= one.slo_ms


def _part(one: pb.ApplicationSample, prefix: str) -> Any:
    """A part of an application's sample; ``None`` where it is absent."""
    if prefix == "latency_":
        return one.latency if one.HasField("latency") else None
    return one.group.psi if prefix else one.group


def _value(message: Any, name: str) -> Any:
    if message is None:
        return None
    known = not message.DESCRIPTOR.fields_by_name[name].has_presence or message.HasField(name)
    return getattr(message, name) if known else None


def application_names(ticks: Mapping[str, Column]) -> tuple[str, ...]:
    """The names of the applications that the columns of ticks have, in their order.

    It is empty where there is one, and in recordings that were made before there were such columns.
    """
    found = (_TARGET.fullmatch(title) for title in ticks)
    return tuple(match[1] for match in found if match is not None)


def application_samples(
    ticks: Mapping[str, Column],
) -> tuple[tuple[ApplicationSample, ...], ...]:
    """The samples of the applications at each tick, as the daemon read them.

    Args:
        ticks: The columns of the ticks of a recording, as they are read back.

    Returns:
        As many as there are ticks, in their order; each is empty where there is one application.
        New requests are not in them.

    Raises:
        RecordingError: If a column holds something else than it should.
    """
    each = [_samples_of(ticks, name) for name in application_names(ticks)]
    rows = zip(*each, strict=True) if each else ((),) * len(ticks["time_s"])
    return tuple(tuple(one for one in row if one is not None) for row in rows)


def _absent(value: object) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _samples_of(ticks: Mapping[str, Column], name: str) -> list[ApplicationSample | None]:
    """The sample of one application at each tick; ``None`` where it is not in it."""

    def column(field: str, kind: type[_T]) -> list[_T | None]:
        title = f"application:{name}:{field}"
        values = ticks.get(title)
        if values is None:
            return [None] * len(ticks["time_s"])
        try:
            return [None if _absent(value) else kind(value) for value in values.tolist()]  # type: ignore[call-arg]
        except (TypeError, ValueError, OverflowError) as error:
            raise RecordingError(
                f"The column {title!r} holds something else than it should ({error}).",
                next_step="Record it again with `stallward record`.",
            ) from error

    parts = {
        prefix: {field: column(prefix + field, kind) for field, kind in kinds.items()}
        for prefix, _, kinds in _PARTS
    }

    def part(prefix: str, row: int) -> dict[str, Any]:
        return {field: values[row] for field, values in parts[prefix].items()}

    return [
        None
        if slo_ms is None
        else ApplicationSample(
            name=name,
            slo_ms=slo_ms,
            group=GroupSample(
                name=group or "", psi=PsiTotals(**part("psi_", row)), **part("", row)
            ),
            latency=None
            if parts["latency_"]["window_s"][row] is None
            else LatencySample(**part("latency_", row)),
        )
        for row, (slo_ms, group) in enumerate(
            zip(column("slo_ms", float), column("group", str), strict=True)
        )
    ]
