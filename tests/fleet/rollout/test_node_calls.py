"""What a rollout leaves on a node that it puts back."""

from __future__ import annotations

from typing import Any

import pytest
from test_rollout_progress import began

from stallward.actuator.client.status import STATUS, DaemonStatus
from stallward.actuator.record.tick_record import Mode
from stallward.fleet.rollout.events import Found, Returned
from stallward.fleet.rollout.node_calls import put_back
from stallward.proto.v1 import stallward_pb2 as pb

PLAN = began(1).plan


class Node:
    """A node on which the policy of the plan decides."""

    def __init__(self) -> None:
        self.loaded, self.mode = "/new.onnx", Mode.ACTIVE

    def status(self) -> DaemonStatus:
        sha256 = PLAN.sha256 if self.loaded == "/new.onnx" else "1" * 64
        policy = pb.PolicyStatus(path=self.loaded, sha256=sha256)
        return STATUS.from_wire(pb.StatusResponse(policy=policy, mode=self.mode.value))

    def load(self, path: str) -> None:
        self.loaded, self.mode = path, Mode.OFF

    def set_mode(self, mode: Mode) -> None:
        self.mode = mode


@pytest.mark.parametrize("mode", list(Mode))
def test_what_was_loaded_is_loaded_again_in_its_mode(mode: Mode) -> None:
    node: Any = Node()
    found = Found(node="a", policy="/old.onnx", mode=mode.name.lower())
    for _ in range(2):
        assert put_back("a", node, PLAN, found) == Returned(node="a")
        assert (node.loaded, node.mode) == ("/old.onnx", mode)
