"""Between domain values and the wire: both directions, nowhere else.

Fields of the same name correspond; absent optional fields are ``None``. Round trips are exact.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final, TypeVar

from google.protobuf.message import Message

from stallward.actuator.latency.config import LatencyConfig
from stallward.actuator.latency.source import LatencySource
from stallward.actuator.levers.result import LeverResult
from stallward.actuator.record import Circumstances, Mode, NamedDecision, TickRecord, TickTimings
from stallward.agent.controller import Decision
from stallward.agent.desired import DesiredState, ProcessRef, SlotDesire, Tuning
from stallward.agent.sample import (
    GroupSample,
    LatencySample,
    LeverState,
    NodeSample,
    ProcessSample,
    PsiTotals,
    Sample,
    SlotState,
)
from stallward.proto.v1 import stallward_pb2 as pb

_T = TypeVar("_T")
_M = TypeVar("_M", bound=Message)

_MODE_TO_WIRE: Final = {
    Mode.OFF: pb.MODE_OFF,
    Mode.SHADOW: pb.MODE_SHADOW,
    Mode.ACTIVE: pb.MODE_ACTIVE,
}
_MODE_FROM_WIRE: Final = {wire: mode for mode, wire in _MODE_TO_WIRE.items()}


class _Flat:
    """Converts between a dataclass of scalars and the message with the same fields."""

    def __init__(self, domain: type[Any], wire: type[Message], *, skip: tuple[str, ...] = ()):
        self.domain, self.wire = domain, wire
        self.names = tuple(f.name for f in fields(domain) if f.name not in skip)
        described = wire.DESCRIPTOR.fields_by_name
        self.optional = tuple((name, described[name].has_presence) for name in self.names)
        self.repeated = tuple(name for name in self.names if described[name].is_repeated)

    def to_wire(self, value: Any) -> dict[str, Any]:
        return {name: found for name in self.names if (found := getattr(value, name)) is not None}

    def from_wire(self, message: Message) -> dict[str, Any]:
        found = {
            name: None if optional and not message.HasField(name) else getattr(message, name)
            for name, optional in self.optional
        }
        for name in self.repeated:
            found[name] = tuple(getattr(message, name))
        return found


_PSI: Final = _Flat(PsiTotals, pb.PsiTotals)
_GROUP: Final = _Flat(GroupSample, pb.GroupSample, skip=("psi",))
_NODE: Final = _Flat(NodeSample, pb.NodeSample, skip=("psi",))
_LATENCY: Final = _Flat(LatencySample, pb.LatencySample)
_PROCESS: Final = _Flat(ProcessSample, pb.ProcessSample)
_MOVED: Final = _Flat(LeverState, pb.LeverState)
_STATE: Final = _Flat(SlotState, pb.SlotState)
_TUNING: Final = _Flat(Tuning, pb.Tuning)
_SLOT: Final = _Flat(SlotDesire, pb.SlotDesire)
_REF: Final = _Flat(ProcessRef, pb.ProcessRef)
_LEVER: Final = _Flat(LeverResult, pb.LeverResult)
_TIMINGS: Final = _Flat(TickTimings, pb.TickTimings)
_CIRCUMSTANCES: Final = _Flat(Circumstances, pb.Circumstances)


def mode_to_wire(mode: Mode) -> pb.Mode:
    """The wire's value of a mode."""
    return _MODE_TO_WIRE[mode]


def mode_from_wire(mode: pb.Mode) -> Mode | None:
    """The mode of a wire value; ``None`` for unspecified and unknown ones."""
    return _MODE_FROM_WIRE.get(mode)


def _psi_to_wire(psi: PsiTotals) -> pb.PsiTotals:
    return pb.PsiTotals(**_PSI.to_wire(psi))


def _group_to_wire(group: GroupSample) -> pb.GroupSample:
    return pb.GroupSample(psi=_psi_to_wire(group.psi), **_GROUP.to_wire(group))


def _group_from_wire(message: pb.GroupSample) -> GroupSample:
    return GroupSample(psi=PsiTotals(**_PSI.from_wire(message.psi)), **_GROUP.from_wire(message))


def sample_to_wire(sample: Sample) -> pb.Sample:
    """The wire form of a sample."""
    node = pb.NodeSample(psi=_psi_to_wire(sample.node.psi), **_NODE.to_wire(sample.node))
    latency = sample.latency
    return pb.Sample(
        sequence=sample.sequence,
        time_s=sample.time_s,
        node=node,
        zone=_group_to_wire(sample.zone),
        protected=_group_to_wire(sample.protected),
        slots=[_group_to_wire(group) for group in sample.slots],
        slot_states=[pb.SlotState(**_STATE.to_wire(state)) for state in sample.slot_states],
        latency=None if latency is None else pb.LatencySample(**_LATENCY.to_wire(latency)),
        processes=[pb.ProcessSample(**_PROCESS.to_wire(p)) for p in sample.processes or ()],
        processes_known=sample.processes is not None,
        profile=sample.profile,
        levers=[pb.LeverState(**_MOVED.to_wire(state)) for state in sample.levers],
    )


def sample_from_wire(message: pb.Sample) -> Sample:
    """The sample of a wire message."""
    node = NodeSample(
        psi=PsiTotals(**_PSI.from_wire(message.node.psi)), **_NODE.from_wire(message.node)
    )
    latency = None
    if message.HasField("latency"):
        latency = LatencySample(**_LATENCY.from_wire(message.latency))
    processes = None
    if message.processes_known:
        processes = tuple(ProcessSample(**_PROCESS.from_wire(p)) for p in message.processes)
    return Sample(
        sequence=message.sequence,
        time_s=message.time_s,
        node=node,
        zone=_group_from_wire(message.zone),
        protected=_group_from_wire(message.protected),
        slots=tuple(_group_from_wire(group) for group in message.slots),
        slot_states=tuple(SlotState(**_STATE.from_wire(s)) for s in message.slot_states),
        latency=latency,
        processes=processes,
        profile=message.profile,
        levers=tuple(LeverState(**_MOVED.from_wire(state)) for state in message.levers),
    )


def desired_to_wire(desired: DesiredState) -> pb.DesiredState:
    """The wire form of a desired state.

    Raises:
        ValueError: If a number does not fit the wire's integers.
    """
    terminate = desired.terminate
    return pb.DesiredState(
        slots=[pb.SlotDesire(**_SLOT.to_wire(slot)) for slot in desired.slots],
        tuning=pb.Tuning(**_TUNING.to_wire(desired.tuning)),
        stopped=[pb.ProcessRef(**_REF.to_wire(ref)) for ref in desired.stopped],
        terminate=None if terminate is None else pb.ProcessRef(**_REF.to_wire(terminate)),
        protect_from_oom=desired.protect_from_oom,
        protected_low_bytes=desired.protected_low_bytes,
        protected_willneed=desired.protected_willneed,
    )


def desired_from_wire(message: pb.DesiredState) -> DesiredState:
    """The desired state of a wire message; a missing tuning is the default one."""
    terminate = None
    if message.HasField("terminate"):
        terminate = ProcessRef(**_REF.from_wire(message.terminate))
    tuning = Tuning()
    if message.HasField("tuning"):
        tuning = Tuning(**_TUNING.from_wire(message.tuning))
    return DesiredState(
        slots=tuple(SlotDesire(**_SLOT.from_wire(slot)) for slot in message.slots),
        tuning=tuning,
        stopped=tuple(ProcessRef(**_REF.from_wire(ref)) for ref in message.stopped),
        terminate=terminate,
        protect_from_oom=message.protect_from_oom,
        protected_low_bytes=(
            message.protected_low_bytes if message.HasField("protected_low_bytes") else None
        ),
        protected_willneed=message.protected_willneed,
    )


def decision_to_wire(named: NamedDecision) -> pb.Decision:
    """The wire form of a decision and whose it is."""
    decision = named.decision
    return pb.Decision(
        controller=named.controller,
        desired=desired_to_wire(decision.desired),
        reason=decision.reason,
        action=decision.action or (),
        propensity=decision.propensity,
        score=decision.score,
    )


def decision_from_wire(message: pb.Decision) -> NamedDecision:
    """The decision of a wire message; an empty action is no action."""
    decision = Decision(
        desired=desired_from_wire(message.desired),
        reason=message.reason,
        action=tuple(message.action) or None,
        propensity=message.propensity if message.HasField("propensity") else None,
        score=message.score if message.HasField("score") else None,
    )
    return NamedDecision(controller=message.controller, decision=decision)


def record_to_wire(record: TickRecord) -> pb.TickRecord:
    """The wire form of a tick record."""
    return pb.TickRecord(
        sequence=record.sequence,
        time_s=record.time_s,
        wall_time_s=record.wall_time_s,
        sample=sample_to_wire(record.sample),
        observation=record.observation,
        decision=decision_to_wire(record.decision),
        granted=desired_to_wire(record.granted),
        guard_notes=record.guard_notes,
        applied=[pb.LeverResult(**_LEVER.to_wire(result)) for result in record.applied],
        timings=pb.TickTimings(**_TIMINGS.to_wire(record.timings)),
        mode=mode_to_wire(record.mode),
        shadow=None if record.shadow is None else decision_to_wire(record.shadow),
        fallback=record.fallback,
        circumstances=pb.Circumstances(**_CIRCUMSTANCES.to_wire(record.circumstances)),
    )


def record_from_wire(message: pb.TickRecord) -> TickRecord:
    """The tick record of a wire message."""
    return TickRecord(
        sequence=message.sequence,
        time_s=message.time_s,
        wall_time_s=message.wall_time_s,
        sample=sample_from_wire(message.sample),
        observation=tuple(message.observation),
        decision=decision_from_wire(message.decision),
        granted=desired_from_wire(message.granted),
        guard_notes=tuple(message.guard_notes),
        applied=tuple(LeverResult(**_LEVER.from_wire(result)) for result in message.applied),
        timings=TickTimings(**_TIMINGS.from_wire(message.timings)),
        mode=mode_from_wire(message.mode) or Mode.OFF,
        shadow=decision_from_wire(message.shadow) if message.HasField("shadow") else None,
        fallback=message.fallback,
        circumstances=Circumstances(**_CIRCUMSTANCES.from_wire(message.circumstances)),
    )


def latency_status(
    config: LatencyConfig | None, source: LatencySource | None
) -> pb.LatencySourceStatus | None:
    """What a client is told of the source of latencies; ``None`` if there is none."""
    if config is None or source is None:
        return None
    counts = source.counts
    return pb.LatencySourceStatus(
        source=config.source,
        fault=source.fault,
        malformed=counts.malformed,
        failed=counts.failed,
        lost=counts.lost,
    )
