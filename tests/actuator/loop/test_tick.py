"""A tick goes on whatever becomes of its record: what is told may come from outside."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.tables import (
    ControlConfig,
    JournalConfig,
    ProtectedConfig,
    ServiceConfig,
    SlotConfig,
)
from stallward.actuator.engine.engine import Engine
from stallward.actuator.engine.interface import EngineSettings
from stallward.actuator.engine.lease import Leases
from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.ipc.channels import MESSAGE_BYTES, GuardianLink, MessageSocket
from stallward.actuator.kernel.cgroups import Hierarchy
from stallward.actuator.loop.commands import CommandHandler
from stallward.actuator.loop.policy_loader import PolicyLoader
from stallward.actuator.loop.tick import Ticker
from stallward.actuator.node.node import Node
from stallward.actuator.record import wire
from stallward.actuator.record.lever_result import LeverResult
from stallward.agent.controller import NodeContext
from stallward.agent.desired import DesiredState
from stallward.agent.registry import make_controller
from stallward.agent.sample import LatencySample, Sample
from stallward.agent.testing import CONTEXT, make_sample
from stallward.proto.v1 import stallward_pb2 as pb


class FakeNode:
    """A node whose application completed ``completed`` requests; it counts what was applied."""

    hierarchy = Hierarchy()
    latencies = (None,)

    def __init__(self) -> None:
        self.sampler = SimpleNamespace(needs_processes=False)
        self.levers = SimpleNamespace(plugins=())
        self.completed = 5
        self.applied: list[DesiredState] = []
        self.released = 0
        self.broken: BaseException | None = None

    def pods(self, _slot: int) -> tuple[str, ...]:
        return ()

    def work_faults(self) -> tuple[str, ...]:
        return ("",) * len(CONTEXT.slot_names)

    def read(self, sequence: int, now_s: float) -> Sample:
        if self.broken is not None:
            raise self.broken
        latency = LatencySample(window_s=1.0, completed=1, completed_total=self.completed)
        return replace(make_sample(sequence), time_s=now_s, latency=latency)

    def apply(self, granted: DesiredState, *_: object) -> tuple[LeverResult, ...]:
        self.applied.append(granted)
        return ()

    def release(self, _now_s: float) -> tuple[LeverResult, ...]:
        self.released += 1
        return ()

    def anything_held(self) -> bool:
        return False

    def passing_faults(self) -> tuple[str, ...]:
        return ()

    def problems(self) -> tuple[str, ...]:
        return ()

    def missing(self) -> tuple[str, ...]:
        return ("io_max: no disk",)


class Ticking:
    """A ticker on a fake node, and what the service receives from it."""

    def __init__(self, folder: Path, guardian: socket.socket, service: socket.socket) -> None:
        self.node = FakeNode()
        context = NodeContext(zone_limit_bytes=1 << 30, slot_names=CONTEXT.slot_names)
        engine = Engine(
            settings=EngineSettings(context=context, budgets=Budgets()),
            configured=make_controller("none"),
            default=make_controller("none"),
        )
        leases = Leases()
        self.ticker = Ticker(
            config=DaemonConfig(
                protected=ProtectedConfig(group="app"),
                background=tuple(SlotConfig(name=n, group=n) for n in CONTEXT.slot_names),
                service=ServiceConfig(socket=folder / "s"),
                journal=JournalConfig(path=folder / "j"),
                control=ControlConfig(controller="none"),
            ),
            node=cast("Node", self.node),
            engine=engine,
            leases=leases,
            commands=CommandHandler(engine=engine, leases=leases, loader=PolicyLoader()),
            link=GuardianLink(guardian, timeout_s=0.01),
            service=MessageSocket(service),
            recorder=None,
            restarts=0,
            daemon_start_s=0.0,
        )

    def tick(self) -> None:
        self.ticker._status_at_s = float("-inf")
        self.ticker._tick(0.0)


@pytest.fixture
def service() -> Iterator[tuple[socket.socket, socket.socket]]:
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pair[1].settimeout(5.0)
    with pair[0], pair[1]:
        yield pair


@pytest.fixture
def ticking(tmp_path: Path, service: tuple[socket.socket, socket.socket]) -> Iterator[Ticking]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        yield Ticking(tmp_path, ours, service[0])


def received(service: tuple[socket.socket, socket.socket]) -> pb.LoopMessage:
    return pb.LoopMessage.FromString(service[1].recv(MESSAGE_BYTES))


def test_a_record_that_cannot_be_made_ends_no_tick(
    ticking: Ticking,
    service: tuple[socket.socket, socket.socket],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(_record: Any) -> pb.TickRecord:
        raise RuntimeError("nobody has thought of this")

    monkeypatch.setattr(wire.TICK_RECORD, "to_wire", broken)
    for _ in range(3):
        ticking.tick()
    assert len(ticking.node.applied) == 3, "the levers follow"
    statuses = [received(service).status for _ in range(3)]
    assert [status.ticks for status in statuses] == [1, 2, 3]
    assert list(statuses[-1].missing) == [
        "records: 3 could not be made; the first: RuntimeError: nobody has thought of this",
        "io_max: no disk",
    ]


def test_a_status_and_an_answer_that_cannot_be_made_end_no_tick(
    ticking: Ticking, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> pb.StatusResponse:
        raise ValueError("odd")

    monkeypatch.setattr(ticking.ticker._status, "make", broken)
    monkeypatch.setattr(ticking.ticker._commands, "handle", broken)
    ticking.tick()
    ticking.ticker._tell(lambda: ticking.ticker._answer(b"x"))
    ticking.tick()
    assert len(ticking.node.applied) == 2


@pytest.mark.parametrize("completed", [2**64, 2**200, -1])
def test_a_count_that_no_message_can_hold_is_the_nearest_that_one_can(
    ticking: Ticking, service: tuple[socket.socket, socket.socket], completed: int
) -> None:
    ticking.node.completed = completed
    ticking.tick()
    assert received(service).tick.sample.latency.completed_total == max(
        0, min(completed, 2**64 - 1)
    )
    assert list(received(service).status.missing) == ["io_max: no disk"]


@pytest.mark.parametrize(
    "error", [RecursionError("too deep"), ValueError("odd"), MemoryError(), KeyError("pid")]
)
def test_whatever_fails_while_a_sample_is_read_is_a_blind_tick_and_never_the_end(
    ticking: Ticking,
    service: tuple[socket.socket, socket.socket],
    capfd: pytest.CaptureFixture[str],
    error: Exception,
) -> None:
    ticking.node.broken = error
    for _ in range(120):  # more than ten seconds of it
        ticking.tick()
        status = received(service).status
    assert ticking.node.released == 120
    assert not ticking.node.applied, "nothing is decided without a sample"
    why = f"{type(error).__name__}: {error}"
    assert status.missing[0] == f"samples: 120 could not be read; the last: {why}"
    assert capfd.readouterr().err.count("no sample can be read") == 1
    ticking.node.broken = None
    ticking.tick()
    assert len(ticking.node.applied) == 1, "it goes on by itself"


def test_a_client_that_waits_for_a_blind_tick_is_told_that_nothing_is_held_back(
    ticking: Ticking, service: tuple[socket.socket, socket.socket]
) -> None:
    ticking.node.broken = ValueError("odd")
    apply = pb.ApplyRequest(holder="me", lease_s=5.0)
    ticking.ticker._answer(pb.Command(id=7, apply=apply).SerializeToString())
    ticking.tick()
    assert received(service).WhichOneof("kind") == "status", "first, as after any tick"
    result = received(service).result
    assert (result.id, result.code) == (7, "UNAVAILABLE")
    assert "nothing is held back" in result.message


@pytest.mark.parametrize("end", [KeyboardInterrupt(), SystemExit(0)])
def test_what_is_to_end_the_loop_ends_it(ticking: Ticking, end: BaseException) -> None:
    ticking.node.broken = end
    with pytest.raises(type(end)):
        ticking.tick()
