"""The table of a fleet: what a person might look at on a node."""

from __future__ import annotations

from stallward.actuator.client.status import STATUS
from stallward.fleet.cli.table import node_row
from stallward.proto.v1 import stallward_pb2 as pb


def problems_of(message: pb.StatusResponse) -> tuple[str, ...]:
    return node_row("n1", STATUS.from_wire(message)).problems


def test_a_node_has_the_problems_that_its_daemon_names() -> None:
    message = pb.StatusResponse(mode=pb.MODE_OFF, slots=["batch", "more"])
    assert problems_of(message) == ()
    message.problems.extend(["pods: none for app", "slots[1]: the group is gone"])
    assert problems_of(message) == ("pods: none for app", "more: the group is gone")


def test_latencies_that_fail_are_named_once_also_those_of_several_applications() -> None:
    message = pb.StatusResponse(mode=pb.MODE_OFF)
    for name, fault in (("web", "has no timing named web"), ("db", "")):
        one = message.applications.add(name=name, slo_ms=10.0)
        one.latency_source.source, one.latency_source.fault = "statsd", fault
    message.applications.add(name="cache", slo_ms=5.0)
    assert problems_of(message) == ("no latencies of web: has no timing named web",)
    message.problems.append("latency of web: cannot be read (has no timing named web)")
    assert problems_of(message) == tuple(message.problems)
    alone = pb.StatusResponse(mode=pb.MODE_OFF)
    alone.latency_source.source, alone.latency_source.fault = "lines", "nothing is heard"
    assert problems_of(alone) == ("no latencies: nothing is heard",)
