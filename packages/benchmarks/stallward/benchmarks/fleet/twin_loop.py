"""The loop of a simulated node: the engine, the guard and the commands of a real one on a twin."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Final

from stallward.actuator.config.tables import PolicyConfig
from stallward.actuator.engine.engine import Engine
from stallward.actuator.engine.interface import EngineSettings, TickOutcome
from stallward.actuator.engine.lease import Leases
from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.ipc.channels import MessageSocket, frame_status, frame_tick
from stallward.actuator.loop.commands import CommandHandler
from stallward.actuator.loop.policy_loader import PolicyLoader
from stallward.actuator.record.tick_record import TickRecord
from stallward.actuator.record.wire import MODE, TICK_RECORD
from stallward.agent.registry import make_controller
from stallward.agent.sample import Sample
from stallward.env.twin.node import TwinNode
from stallward.proto.v1 import stallward_pb2 as pb

CONTROLLER: Final = "rule"
"""What decides on the nodes while no policy is active."""
TICK_S: Final = 0.5
"""The time of the twin between two ticks: that of a calm node."""
_STATUS_S: Final = 1.0
_NEVER_LATE_S: Final = 1e9


class TwinLoop:
    """Ticks a twin node, and sends what a loop sends to its service.

    Args:
        node: The twin node.
        connection: The loop's end of the socket to the service.
        store: The folder of the policies that were pushed.
    """

    def __init__(self, node: TwinNode, connection: socket.socket, store: Path) -> None:
        context = node.context()
        self._node = node
        self._service = MessageSocket(connection)
        self._slots = context.slot_names
        self._step_s = context.tick_period_s
        self._engine = Engine(
            settings=EngineSettings(context=context, budgets=Budgets(), late_s=_NEVER_LATE_S),
            configured=make_controller(CONTROLLER),
            default=make_controller("none"),
        )
        # Many nodes share this process, and their policies are its own.
        loader = PolicyLoader(PolicyConfig(store=store), trial=lambda _path: None)
        self._commands = CommandHandler(engine=self._engine, leases=Leases(), loader=loader)
        self._status_at_s = float("-inf")
        self.sent = 0
        """How many ticks were sent; they are numbered from 0."""

    def answer(self) -> None:
        """Answer the commands that have arrived."""
        while message := self._service.receive():
            answer = self._commands.handle(message, time.monotonic())
            if answer is not None:
                self._tell_status()
                self._service.send(answer)

    def tick(self) -> None:
        """Decide once, and let :data:`TICK_S` pass on the twin."""
        sample = self._node.sample()
        outcome = self._engine.step(sample, late=False)
        record = TICK_RECORD.to_wire(self._record(sample, outcome))
        self._service.send(frame_tick(record.SerializeToString()))
        self.sent += 1
        answers = self._commands.after_tick(outcome, time.monotonic())
        if answers or time.monotonic() >= self._status_at_s:
            self._tell_status()
        for answer in answers:
            self._service.send(answer)
        for _ in range(round(TICK_S / self._step_s)):
            self._node.step(outcome.granted)

    def _record(self, sample: Sample, outcome: TickOutcome) -> TickRecord:
        return TickRecord(
            sequence=self.sent,
            time_s=sample.time_s,
            wall_time_s=time.time(),
            sample=sample,
            observation=tuple(outcome.observation.tolist()),
            decision=outcome.decision,
            granted=outcome.granted,
            reasons=outcome.reasons,
            mode=outcome.mode,
            fallback=outcome.fallback,
        )

    def _tell_status(self) -> None:
        status = pb.StatusResponse(
            node_kind="twin",
            controller=self._engine.in_force.name,
            mode=MODE.to_wire(self._engine.mode),
            policy=self._commands.policy,
            slots=self._slots,
            ticks=self.sent,
        )
        self._service.send(frame_status(status.SerializeToString()))
        self._status_at_s = time.monotonic() + _STATUS_S
