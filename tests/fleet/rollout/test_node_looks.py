"""What is counted at looks at one node."""

from __future__ import annotations

from stallward.actuator.client.status import STATUS, DaemonStatus
from stallward.fleet.rollout.contrast import Tally
from stallward.fleet.rollout.node_calls import NodeLooks
from stallward.proto.v1 import stallward_pb2 as pb

SLO_MS = 100.0


def status(
    sequence: int, p95_ms: float | None, *, intervened: bool = False, leased: bool = False
) -> DaemonStatus:
    wire = pb.StatusResponse(slo_ms=SLO_MS)
    tick = wire.last_tick
    tick.sequence = sequence
    tick.decision.leased = leased
    if p95_ms is not None:
        tick.sample.latency.p95_ms = p95_ms
    if intervened:
        tick.reasons.changes.add(rule=pb.GUARD_RULE_MAX_PAUSE, wish=pb.WISH_SLOT, group="hog")
    return STATUS.from_wire(wire)


def test_looks_and_how_often_they_change_are_counted() -> None:
    looks = NodeLooks()
    for sequence, p95_ms in enumerate([10.0, 10.0, 200.0, 200.0, None, 10.0]):
        looks.take(status(sequence, p95_ms, intervened=sequence == 3))
    assert looks.tally == Tally(
        looks=5, met=3, met_changes=2, ticks=6, intervened=1, intervened_changes=2, fallen=0
    )


def test_a_tick_that_was_seen_before_or_was_decided_by_a_client_does_not_count() -> None:
    looks = NodeLooks()
    for one in (status(1, 10.0), status(1, 10.0), status(2, 200.0, leased=True), status(3, 10.0)):
        looks.take(one)
    assert looks.tally == Tally(
        looks=2, met=2, met_changes=0, ticks=2, intervened=0, intervened_changes=0, fallen=0
    )
