"""The work of slots on the wire."""

from __future__ import annotations

from typing import Final

from stallward.actuator.record.flat_wire import FlatWire, Parts
from stallward.agent.sample import WorkFault, WorkSample, WorkSource
from stallward.proto.v1 import stallward_pb2 as pb

_WORK: Final = FlatWire(WorkSample, pb.WorkSample, skip=("source", "fault"))
_SOURCE_TO_WIRE: Final = {
    WorkSource.CPU: pb.WORK_SOURCE_CPU,
    WorkSource.FILE: pb.WORK_SOURCE_FILE,
    WorkSource.PROMETHEUS: pb.WORK_SOURCE_PROMETHEUS,
    WorkSource.COMMAND: pb.WORK_SOURCE_COMMAND,
}
_SOURCE_FROM_WIRE: Final = {wire: source for source, wire in _SOURCE_TO_WIRE.items()}
_FAULT_TO_WIRE: Final = {
    fault: pb.WORK_FAULT_UNSPECIFIED
    if fault is WorkFault.NONE
    else pb.WorkFault.Value(f"WORK_FAULT_{fault.name}")
    for fault in WorkFault
}
_FAULT_FROM_WIRE: Final = {wire: fault for fault, wire in _FAULT_TO_WIRE.items()}


def work_source_to_wire(source: WorkSource) -> pb.WorkSource:
    """Return the wire's value of a source."""
    return _SOURCE_TO_WIRE[source]


def work_source_from_wire(source: pb.WorkSource) -> WorkSource:
    """Return the source of a wire value; processor time if it is unspecified or unknown."""
    return _SOURCE_FROM_WIRE.get(source, WorkSource.CPU)


def work_parts(work: WorkSample) -> Parts:
    """Return the fields of the message of a slot's work."""
    return {
        **_WORK.to_wire(work),
        "source": _SOURCE_TO_WIRE[work.source],
        "fault": _FAULT_TO_WIRE[work.fault],
    }


def work_from_wire(message: pb.WorkSample) -> WorkSample:
    """Return the work of a wire message; a fault of a later version is ``UNREADABLE``."""
    return WorkSample(
        **_WORK.from_wire(message),
        source=work_source_from_wire(message.source),
        fault=_FAULT_FROM_WIRE.get(message.fault, WorkFault.UNREADABLE),
    )
