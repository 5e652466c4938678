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
Latency = Callable[[Arm], float | None]


class Node:
    """A service whose loop is this test, which lets its time go by."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.loop = Loop(service)
        self.client = ActuatorClient(service.socket)
        self.client.wait_ready(WAIT_S)
        self.second = self.answered = 0

    def until(
        self,
        done: Callable[[Experiment], bool],
        p95_ms: Latency,
        *,
        queues: bool = False,
        **tick: bool,
    ) -> Experiment:
        """Let seconds go by until the experiment is so.

        Args:
            done: Whether it is.
            p95_ms: The latency under each arm; ``None`` for no answer.
            queues: Whether requests wait where there is none, and are answered later.
            tick: More about each second.
        """
        deadline_s = time.monotonic() + WAIT_S
        while not done(seen := self.experiment()):
            assert time.monotonic() < deadline_s, seen
            self.second += 1
            active = self.loop.status.mode == pb.MODE_ACTIVE
            arm = Arm.TREATMENT if active else Arm.BASELINE
            latency_ms, waited_s = p95_ms(arm), self.second - self.answered - 1
            longest_ms = 1e3 * waited_s if queues and waited_s else latency_ms
            self.loop.send_second(self.second, p95_ms=latency_ms, longest_ms=longest_ms, **tick)
            self.answered = self.answered if latency_ms is None else self.second
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
