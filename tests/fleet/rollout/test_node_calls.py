"""What a rollout does with nodes, and what it says of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rolling_nodes import NodesClock
from test_rollout_progress import began

from stallward.actuator.client.status import STATUS, DaemonStatus
from stallward.actuator.record.tick_record import Mode
from stallward.actuator.record.wire import MODE
from stallward.fleet.connections import Fleet
from stallward.fleet.rollout.events import (
    Began,
    Event,
    Found,
    Measured,
    Returned,
    Switched,
    Switching,
)
from stallward.fleet.rollout.node_calls import put_back
from stallward.fleet.rollout.plan import WaveRules
from stallward.fleet.rollout.progress import NodeState, Outcome
from stallward.fleet.rollout.rollout import Rollout, event_line
from stallward.proto.v1 import stallward_pb2 as pb

PLAN = began(1).plan


class Node:
    """A node on which the policy of the plan decides."""

    def __init__(self) -> None:
        self.loaded, self.mode = "/new.onnx", Mode.ACTIVE

    def status(self) -> DaemonStatus:
        sha256 = PLAN.sha256 if self.loaded == "/new.onnx" else "1" * 64
        policy = pb.PolicyStatus(path=self.loaded, sha256=sha256)
        return STATUS.from_wire(pb.StatusResponse(policy=policy, mode=MODE.to_wire(self.mode)))

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


@pytest.mark.parametrize(
    ("told", "state"), [(False, NodeState.NOT_REACHED), (True, NodeState.UNSURE)]
)
def test_a_silent_node_that_was_told_to_switch_may_run_it(
    tmp_path: Path, told: bool, state: NodeState
) -> None:
    (name,) = PLAN.nodes
    found = Found(node=name, policy="/old.onnx", mode="active")
    log: list[Event] = [began(1), Measured(tallies={}), found]
    log += [Switching(nodes=(name,))] if told else []
    (tmp_path / "state").write_text("".join(map(event_line, log)))
    with Fleet({name: tmp_path / "gone.sock"}) as fleet, Rollout(tmp_path / "state") as going:
        if not told:
            going.progress.take(Measured(tallies={}))
        assert going.run(fleet, None, lambda _: None).outcome is Outcome.PAUSED
        assert going.progress.states == {name: state}


def test_a_wave_is_watched_for_as_long_as_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, told = NodesClock([]), dict[str, float]()
    monkeypatch.setattr("stallward.fleet.rollout.rollout.time", clock)
    rules = WaveRules(watch_s=60.0, look_s=10.0, failed_share=1.0)
    (name,) = PLAN.nodes
    log: list[Event] = [Began(plan=replace(PLAN, rules=rules), by="me")]
    log += [Measured(tallies={}), Found(node=name, policy="", mode="off")]
    log += [Switching(nodes=(name,)), Switched(node=name)]
    (tmp_path / "state").write_text("".join(map(event_line, log)))
    with Rollout(tmp_path / "state") as going:
        going.run(Fleet({}), None, lambda text: told.update({text[:12]: clock.monotonic()}))
    assert told["wave 1 is ba"] - told["wave 1: watc"] == 60.0
