"""Conversion between values and the messages of the wire; it is done nowhere else.

Fields of the same name correspond; an absent optional field is ``None``. Round trips are exact.
A record first becomes one tree of dicts and lists, and then a message: a message made of messages
is copied part by part, which takes 1.5 times as long.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from stallward.actuator.latency.config import LatencyConfig
from stallward.actuator.latency.source import LatencySource
from stallward.actuator.record.flat_wire import FlatWire, Parts, make_message
from stallward.actuator.record.lever_result import LeverResult
from stallward.actuator.record.old_notes import was_leased
from stallward.actuator.record.reasons_wire import reasons_from_wire, reasons_parts
from stallward.actuator.record.threads.wire import (
    thread_desires_from_wire,
    thread_desires_parts,
    threads_from_wire,
    threads_parts,
)
from stallward.actuator.record.tick_record import (
    Circumstances,
    Mode,
    NamedDecision,
    TickRecord,
    TickTimings,
)
from stallward.actuator.record.work_wire import work_from_wire, work_parts
from stallward.agent.controller import Decision
from stallward.agent.desired import DesiredState, ProcessRef, SlotDesire, Tuning
from stallward.agent.file_pages import FilePages
from stallward.agent.latency_histogram import LatencyHistogram
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

_MODE_TO_WIRE: Final = {
    Mode.OFF: pb.MODE_OFF,
    Mode.SHADOW: pb.MODE_SHADOW,
    Mode.ADVICE: pb.MODE_ADVICE,
    Mode.ACTIVE: pb.MODE_ACTIVE,
}
_MODE_FROM_WIRE: Final = {wire: mode for mode, wire in _MODE_TO_WIRE.items()}


_PSI: Final = FlatWire(PsiTotals, pb.PsiTotals)
_GROUP: Final = FlatWire(GroupSample, pb.GroupSample, skip=("psi",))
_NODE: Final = FlatWire(NodeSample, pb.NodeSample, skip=("psi",))
_LATENCY: Final = FlatWire(LatencySample, pb.LatencySample, skip=("new_requests",))
_HISTOGRAM: Final = FlatWire(LatencyHistogram, pb.LatencyHistogram)
_PROCESS: Final = FlatWire(ProcessSample, pb.ProcessSample)
_LEVER_STATE: Final = FlatWire(LeverState, pb.LeverState)
_SLOT_STATE: Final = FlatWire(SlotState, pb.SlotState)
_TUNING: Final = FlatWire(Tuning, pb.Tuning)
_SLOT: Final = FlatWire(SlotDesire, pb.SlotDesire)
_REF: Final = FlatWire(ProcessRef, pb.ProcessRef)
_FILE_PAGES: Final = FlatWire(FilePages, pb.FilePages)
_LEVER_RESULT: Final = FlatWire(LeverResult, pb.LeverResult)
_TIMINGS: Final = FlatWire(TickTimings, pb.TickTimings)
_CIRCUMSTANCES: Final = FlatWire(Circumstances, pb.Circumstances)


def mode_to_wire(mode: Mode) -> pb.Mode:
    """Return the wire's value of a mode."""
    return _MODE_TO_WIRE[mode]


def mode_from_wire(mode: pb.Mode) -> Mode | None:
    """Return the mode of a wire value; ``None`` if it is unspecified or unknown."""
    return _MODE_FROM_WIRE.get(mode)


def _group_parts(group: GroupSample) -> Parts:
    return {**_GROUP.to_wire(group), "psi": _PSI.to_wire(group.psi)}


def _group_from_wire(message: pb.GroupSample) -> GroupSample:
    return GroupSample(psi=PsiTotals(**_PSI.from_wire(message.psi)), **_GROUP.from_wire(message))


def _latency_parts(latency: LatencySample) -> Parts:
    parts = _LATENCY.to_wire(latency)
    if latency.new_requests is not None:
        parts["new_requests"] = _HISTOGRAM.to_wire(latency.new_requests)
    return parts


def _latency_from_wire(message: pb.LatencySample) -> LatencySample:
    new = None
    if message.HasField("new_requests"):
        seen = message.new_requests
        new = LatencyHistogram.of(dict(zip(seen.buckets, seen.counts, strict=False)))
    return LatencySample(new_requests=new, **_LATENCY.from_wire(message))


def sample_to_wire(sample: Sample) -> pb.Sample:
    """Return the wire form of a sample."""
    return pb.Sample(**_sample_parts(sample))


def _sample_parts(sample: Sample) -> Parts:
    latency = sample.latency
    return {
        "sequence": sample.sequence,
        "time_s": sample.time_s,
        "node": {**_NODE.to_wire(sample.node), "psi": _PSI.to_wire(sample.node.psi)},
        "zone": _group_parts(sample.zone),
        "protected": _group_parts(sample.protected),
        "slots": [_group_parts(group) for group in sample.slots],
        "slot_states": [_SLOT_STATE.to_wire(state) for state in sample.slot_states],
        "latency": None if latency is None else _latency_parts(latency),
        "processes": [_PROCESS.to_wire(process) for process in sample.processes or ()],
        "processes_known": sample.processes is not None,
        "profile": sample.profile,
        "levers": [_LEVER_STATE.to_wire(state) for state in sample.levers],
        "work": [work_parts(work) for work in sample.work],
        **threads_parts(sample.protected_threads),
    }


def sample_from_wire(message: pb.Sample) -> Sample:
    """Return the sample of a wire message."""
    node = NodeSample(
        psi=PsiTotals(**_PSI.from_wire(message.node.psi)), **_NODE.from_wire(message.node)
    )
    latency = _latency_from_wire(message.latency) if message.HasField("latency") else None
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
        slot_states=tuple(SlotState(**_SLOT_STATE.from_wire(s)) for s in message.slot_states),
        latency=latency,
        processes=processes,
        profile=message.profile,
        levers=tuple(LeverState(**_LEVER_STATE.from_wire(state)) for state in message.levers),
        work=tuple(work_from_wire(work) for work in message.work),
        protected_threads=threads_from_wire(message),
    )


def desired_to_wire(desired: DesiredState) -> pb.DesiredState:
    """Return the wire form of a desired state.

    Raises:
        ValueError: If a number does not fit the wire's integers.
    """
    return pb.DesiredState(**_desired_parts(desired))


def _desired_parts(desired: DesiredState) -> Parts:
    terminate, file_pages = desired.terminate, desired.file_pages
    return {
        "slots": [_SLOT.to_wire(slot) for slot in desired.slots],
        "tuning": _TUNING.to_wire(desired.tuning),
        "stopped": [_REF.to_wire(ref) for ref in desired.stopped],
        "terminate": None if terminate is None else _REF.to_wire(terminate),
        "protect_from_oom": desired.protect_from_oom,
        "protected_low_bytes": desired.protected_low_bytes,
        "protected_willneed": desired.protected_willneed,
        "kill_at_once": desired.kill_at_once,
        "file_pages": None if file_pages is None else _FILE_PAGES.to_wire(file_pages),
        "protected_threads": thread_desires_parts(desired.protected_threads),
    }


def desired_from_wire(message: pb.DesiredState) -> DesiredState:
    """Return the desired state of a wire message; a missing tuning is the default one."""
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
        kill_at_once=message.kill_at_once,
        file_pages=(
            FilePages(**_FILE_PAGES.from_wire(message.file_pages))
            if message.HasField("file_pages")
            else None
        ),
        protected_threads=thread_desires_from_wire(message),
    )


def decision_to_wire(named: NamedDecision) -> pb.Decision:
    """Return the wire form of a decision."""
    return pb.Decision(**_decision_parts(named))


def _decision_parts(named: NamedDecision) -> Parts:
    decision = named.decision
    return {
        "controller": named.controller,
        "desired": _desired_parts(decision.desired),
        "reason": decision.reason,
        "action": decision.action or (),
        "propensity": decision.propensity,
        "score": decision.score,
        "leased": named.leased,
    }


def decision_from_wire(message: pb.Decision) -> NamedDecision:
    """Return the decision of a wire message; an empty action is no action."""
    decision = Decision(
        desired=desired_from_wire(message.desired),
        reason=message.reason,
        action=tuple(message.action) or None,
        propensity=message.propensity if message.HasField("propensity") else None,
        score=message.score if message.HasField("score") else None,
    )
    return NamedDecision(
        controller=message.controller,
        decision=decision,
        leased=message.leased or was_leased(message.controller, message.reason),
    )


def record_to_wire(record: TickRecord) -> pb.TickRecord:
    """Return the wire form of a tick record; numbers that do not fit are the nearest that do."""
    parts: Parts = {
        "sequence": record.sequence,
        "time_s": record.time_s,
        "wall_time_s": record.wall_time_s,
        "sample": _sample_parts(record.sample),
        "observation": record.observation,
        "decision": _decision_parts(record.decision),
        "granted": _desired_parts(record.granted),
        "guard_notes": record.reasons.notes,
        "reasons": reasons_parts(record.reasons),
        "applied": [_LEVER_RESULT.to_wire(result) for result in record.applied],
        "timings": _TIMINGS.to_wire(record.timings),
        "mode": mode_to_wire(record.mode),
        "shadow": None if record.shadow is None else _decision_parts(record.shadow),
        "fallback": record.fallback,
        "slo_ms": record.slo_ms,
        "circumstances": _CIRCUMSTANCES.to_wire(record.circumstances),
    }
    return make_message(pb.TickRecord, parts)


def record_from_wire(message: pb.TickRecord) -> TickRecord:
    """Return the tick record of a wire message."""
    return TickRecord(
        sequence=message.sequence,
        time_s=message.time_s,
        wall_time_s=message.wall_time_s,
        sample=sample_from_wire(message.sample),
        observation=tuple(message.observation),
        decision=decision_from_wire(message.decision),
        granted=desired_from_wire(message.granted),
        reasons=reasons_from_wire(message),
        applied=tuple(
            LeverResult(**_LEVER_RESULT.from_wire(result)) for result in message.applied
        ),
        timings=TickTimings(**_TIMINGS.from_wire(message.timings)),
        mode=mode_from_wire(message.mode) or Mode.OFF,
        shadow=decision_from_wire(message.shadow) if message.HasField("shadow") else None,
        fallback=message.fallback,
        slo_ms=message.slo_ms if message.HasField("slo_ms") else None,
        circumstances=Circumstances(**_CIRCUMSTANCES.from_wire(message.circumstances)),
    )


def latency_status(
    config: LatencyConfig | None, source: LatencySource | None
) -> pb.LatencySourceStatus | None:
    """Return the status of the latency source for clients; ``None`` if there is no source."""
    if config is None or source is None:
        return None
    parts: Parts = {"source": config.source, "fault": source.fault, **asdict(source.counts)}
    return make_message(pb.LatencySourceStatus, parts)
