"""A node that runs experiments, and whose loop and time are the test's."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from policy_loop import Loop
from service_without_loop import WAIT_S, Service

from stallward.actuator.client import ActuatorClient
from stallward.actuator.experiments.plan import Arm, Candidate, ExperimentPlan
from stallward.actuator.experiments.wire import Experiment
from stallward.proto.v1 import stallward_pb2 as pb

BURN_IN_S, BLOCK_S = 5, 20
Latency = Callable[[Arm], float]


class Node:
    """A service whose loop is this test, which lets its time go by."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.loop = Loop(service)
        self.client = ActuatorClient(service.socket)
        self.client.wait_ready(WAIT_S)
        self.second = 0

    def until(
        self, done: Callable[[Experiment], bool], p95_ms: Latency, **tick: bool
    ) -> Experiment:
        """Let seconds go by until the experiment is so."""
        deadline_s = time.monotonic() + WAIT_S
        while not done(seen := self.experiment()):
            assert time.monotonic() < deadline_s, seen
            self.second += 1
            active = self.loop.status.mode == pb.MODE_ACTIVE
            arm = Arm.TREATMENT if active else Arm.BASELINE
            self.loop.send_second(self.second, p95_ms=p95_ms(arm), **tick)
            self.client.status()  # the service has taken the tick, and asked for the next arm
        return seen

    def experiment(self) -> Experiment:
        seen = self.client.experiments.get()
        assert seen is not None
        return seen

    def wait(self, done: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + WAIT_S
        while not done():
            assert time.monotonic() < deadline_s

    def end(self) -> None:
        self.client.close()
        self.loop.end()


def plan(tmp_path: Path, *, pairs: int = 3) -> ExperimentPlan:
    policy = tmp_path / "new.onnx"
    policy.write_bytes(b"new")
    return ExperimentPlan(
        baseline=Candidate(),
        treatment=Candidate(policy=str(policy)),
        pairs=pairs,
        block_s=BLOCK_S,
        burn_in_s=BURN_IN_S,
        seed=7,
    )
