"""How values are written as messages and read again; it is said nowhere else.

What the codecs are told here is where a record differs from its message. Round trips are exact.
"""

from __future__ import annotations

import re
from dataclasses import asdict
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
    use=(
        FAULT,
        EnumCodec(GuardRule, pb.GuardRule, unspecified=GuardRule.OTHER),
        EnumCodec(Wish, pb.Wish, unspecified=Wish.OTHER),
        EnumCodec(Unit, pb.Unit, unspecified=Unit.NONE),
    ),
)


def _reasons_parts(record: TickRecord) -> Parts:
    """Return the reasons; nothing if the tick did as its controller wanted."""
    parts = REASONS.parts(record.reasons)
    return {"reasons": parts if any(parts.values()) else None}


def _reasons(message: pb.TickRecord) -> Reasons:
    return REASONS.from_wire(message.reasons)


# ---------- Decisions and records


DECISION: Final = Codec(
    NamedDecision,
    pb.Decision,
    fields={"decision": Codec(Decision, pb.Decision, use=(DESIRED_STATE,))},
)
TICK_RECORD: Final = Codec(
    TickRecord,
    pb.TickRecord,
    fields={"reasons": Own(_reasons_parts, _reasons)},
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
