"""How values are written as messages and read again; it is said nowhere else.

What the codecs are told here is where a record differs from its message. Round trips are exact.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Final, get_args

from stallward.actuator.guard.changes import GuardRule, Unit, Wish
from stallward.actuator.guard.problem import Expected, Flaw, Problem
from stallward.actuator.record.reasons import (
    Cause,
    DecisionUnfit,
    Fault,
    FaultKind,
    NoDetails,
    Reasons,
)
from stallward.actuator.record.tick_record import Mode, NamedDecision, TickRecord
from stallward.agent.controller import Decision
from stallward.agent.desired import DesiredState
from stallward.agent.latency_histogram import LatencyHistogram
from stallward.agent.sample import Sample, WorkFault, WorkSource
from stallward.proto.codec import Codec, EnumCodec, Own, Parts, make_message
from stallward.proto.v1 import stallward_pb2 as pb

if TYPE_CHECKING:
    from stallward.actuator.latency.config import LatencyConfig
    from stallward.actuator.latency.source import LatencySource

# ---------- Samples and desired states

MODE: Final = EnumCodec(Mode, pb.Mode, unknown=lambda _: Mode.OFF)
WORK_SOURCE: Final = EnumCodec(WorkSource, pb.WorkSource, unknown=lambda _: WorkSource.CPU)
_WORK_FAULT: Final = EnumCodec(
    WorkFault,
    pb.WorkFault,
    unspecified=WorkFault.NONE,
    unknown=lambda _: WorkFault.UNREADABLE,
)
_HISTOGRAM: Final = Codec(LatencyHistogram, pb.LatencyHistogram, make=LatencyHistogram.of_pairs)
SAMPLE: Final = Codec(Sample, pb.Sample, use=(_HISTOGRAM, WORK_SOURCE, _WORK_FAULT))
DESIRED_STATE: Final = Codec(DesiredState, pb.DesiredState)

# ---------- Reasons

_PROBLEM: Final = Codec(
    Problem,
    pb.Problem,
    use=(
        EnumCodec(Flaw, pb.Flaw, unspecified=Flaw.OTHER),
        EnumCodec(Expected, pb.Expected, unspecified=Expected.NOTHING_ELSE),
    ),
)
_KIND: Final = EnumCodec(FaultKind, pb.FaultKind, unspecified=FaultKind.OTHER)
_FIELDS: Final = {
    cause: re.sub(r"(?<!^)(?=[A-Z])", "_", cause.__name__).lower()
    for cause in get_args(Cause)
    if cause is not NoDetails
}
"""The field of each cause in ``pb.Fault``."""
_CAUSES: Final = {
    field: Codec(cause, getattr(pb, cause.__name__))
    for cause, field in _FIELDS.items()
    if cause is not DecisionUnfit
} | {_FIELDS[DecisionUnfit]: Codec(DecisionUnfit, pb.Problem, fields={"problem": _PROBLEM})}


def _cause_parts(fault: Fault) -> Parts:
    """Return the cause, and beside it its kind, for a reader that does not know the cause."""
    parts: Parts = {"kind": _KIND.to_wire(fault.kind)}
    if not isinstance(fault.cause, NoDetails):
        field = _FIELDS[type(fault.cause)]
        parts[field] = _CAUSES[field].parts(fault.cause)
    return parts


def _read_cause(message: pb.Fault) -> Cause:
    field = message.WhichOneof("cause")
    if field is None:
        return NoDetails(kind=_KIND.from_wire(message.kind))
    cause: Cause = _CAUSES[field].from_wire(getattr(message, field))
    return cause


FAULT: Final = Codec(Fault, pb.Fault, fields={"cause": Own(_cause_parts, _read_cause)})
REASONS: Final = Codec(
    Reasons,
    pb.Reasons,
    fields={"notes": None},  # they lie beside the reasons, in the record
    use=(
        FAULT,
        EnumCodec(GuardRule, pb.GuardRule, unspecified=GuardRule.OTHER),
        EnumCodec(Wish, pb.Wish, unspecified=Wish.OTHER),
        EnumCodec(Unit, pb.Unit, unspecified=Unit.NONE),
    ),
)


# ---------- Reasons of old records, which were written as sentences instead of values
# Only what a replay depends on is read: the kind of the fault, and whether a client held a lease.
# No record is written in this form any more.

_OLD_KINDS: Final = {
    "stale sample": FaultKind.STALE,
    "invalid sample": FaultKind.INVALID,
    "signal lost": FaultKind.LOST,
    "observation not finite": FaultKind.OBSERVATION,
    "controller failed": FaultKind.RAISED,
    "decision unusable": FaultKind.UNUSABLE,
    "decision not finite": FaultKind.NOT_FINITE,
    "decision late": FaultKind.LATE,
    "outside the training range": FaultKind.OUT_OF_RANGE,
    "waiting": FaultKind.WAITING,
}


def _fault_from_notes(notes: Sequence[str]) -> Fault | None:
    """Return the fault for which the default controller decided; ``None`` if no note has one."""
    for note in notes:
        prefix, comma, fault = note.partition(", ")
        kind, _, rest = fault.partition(": ")
        if prefix == "fallback" and comma:
            cause = NoDetails(kind=_OLD_KINDS.get(kind, FaultKind.OTHER))
            return Fault(controller=rest.partition(": ")[0], cause=cause)
    return None


def _was_leased(controller: str, reason: str) -> bool:
    """Return whether an old decision, which has no field for it, was of a client with a lease."""
    return (controller, reason) == ("remote", "lease held")


def reasons_of(message: pb.TickRecord | pb.ApplyResponse) -> Reasons:
    """Return the reasons in a message, also those of an old record, which are sentences."""
    reasons, notes = REASONS.from_wire(message.reasons), tuple(message.guard_notes)
    if not notes:
        return reasons
    return replace(reasons, fault=reasons.fault or _fault_from_notes(notes), notes=notes)


def _reasons_parts(record: TickRecord) -> Parts:
    """Return the reasons; nothing if the tick did as its controller wanted."""
    parts = REASONS.parts(record.reasons)
    return {
        "reasons": parts if any(parts.values()) else None,
        "guard_notes": record.reasons.notes,
    }


# ---------- Decisions and records


def _named(*, controller: str, decision: Decision, leased: bool) -> NamedDecision:
    """Make a decision, also one of an old record, which does not say that it was a client's."""
    leased = leased or _was_leased(controller, decision.reason)
    return NamedDecision(controller=controller, decision=decision, leased=leased)


DECISION: Final = Codec(
    NamedDecision,
    pb.Decision,
    fields={"decision": Codec(Decision, pb.Decision, use=(DESIRED_STATE,))},
    make=_named,
)
TICK_RECORD: Final = Codec(
    TickRecord,
    pb.TickRecord,
    fields={"reasons": Own(_reasons_parts, reasons_of)},
    use=(MODE, SAMPLE, DECISION, DESIRED_STATE),
    fit=True,
)


def latency_status(
    config: LatencyConfig | None, source: LatencySource | None
) -> pb.LatencySourceStatus | None:
    """Return the status of the latency source for clients; ``None`` if there is no source."""
    if config is None or source is None:
        return None
    parts: Parts = {"source": config.source, "fault": source.fault, **asdict(source.counts)}
    return make_message(pb.LatencySourceStatus, parts)
