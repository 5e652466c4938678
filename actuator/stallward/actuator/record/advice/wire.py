"""Conversion of advice to the wire and back."""

from __future__ import annotations

from stallward.actuator.record.advice.advice import Advice
from stallward.actuator.record.reasons_wire import fault_from_wire, fault_parts
from stallward.actuator.record.wire import decision_from_wire, decision_to_wire
from stallward.proto.v1 import stallward_pb2 as pb


def advice_to_wire(advice: Advice) -> pb.Advice:
    """Return the wire form of a piece of advice."""
    advised, fault = advice.advised, fault_parts(advice.fault)
    return pb.Advice(
        sequence=advice.sequence,
        wall_time_s=advice.wall_time_s,
        advised=None if advised is None else decision_to_wire(advised),
        fault=None if fault is None else pb.Fault(**fault),
        decided=decision_to_wire(advice.decided),
        p95_ms=advice.p95_ms,
        slo_ms=advice.slo_ms,
        stall_share=advice.stall_share,
        left_out=advice.left_out,
    )


def advice_from_wire(message: pb.Advice) -> Advice:
    """Return the advice of a wire message."""
    return Advice(
        sequence=message.sequence,
        wall_time_s=message.wall_time_s,
        advised=decision_from_wire(message.advised) if message.HasField("advised") else None,
        fault=fault_from_wire(message.fault) if message.HasField("fault") else None,
        decided=decision_from_wire(message.decided),
        p95_ms=message.p95_ms if message.HasField("p95_ms") else None,
        slo_ms=message.slo_ms if message.HasField("slo_ms") else None,
        stall_share=message.stall_share if message.HasField("stall_share") else None,
        left_out=message.left_out,
    )
