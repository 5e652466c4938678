"""The status that the loop sends the service: cheap to make, and never out of date for long."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.tables import (
    JournalConfig,
    ProtectedConfig,
    ServiceConfig,
    SlotConfig,
)
from stallward.actuator.engine.engine import Engine
from stallward.actuator.engine.interface import EngineSettings
from stallward.actuator.engine.lease import Leases
from stallward.actuator.errors import JournalError
from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.ipc.channels import GuardianLink
from stallward.actuator.journal.entries import Stopped
from stallward.actuator.kernel.cgroups import Hierarchy
from stallward.actuator.loop.commands import CommandHandler
from stallward.actuator.loop.policy_loader import PolicyLoader
from stallward.actuator.loop.status import MISSING_S, LoopStatus, StatusSources
from stallward.actuator.node.node import Node
from stallward.agent.controller import NodeContext
from stallward.agent.registry import make_controller


class FakeNode:
    """A node that lacks what the test has set, and counts how often it is asked."""

    hierarchy = Hierarchy()
    latency = None

    def __init__(self) -> None:
        self.lacks: tuple[str, ...] = ("io_max: no disk",)
        self.trouble = ""
        self.asked = 0

    def passing_faults(self) -> tuple[str, ...]:
        return (self.trouble,)

    def missing(self) -> tuple[str, ...]:
        self.asked += 1
        return self.lacks


class Case:
    """The status of a loop on a fake node."""

    def __init__(self, folder: Path, link: GuardianLink) -> None:
        self.node = FakeNode()
        context = NodeContext(zone_limit_bytes=1 << 30, slot_names=("bg",))
        self.engine = Engine(
            settings=EngineSettings(context=context, budgets=Budgets()),
            configured=make_controller("none"),
            default=make_controller("none"),
        )
        self.leases = Leases()
        self.status = LoopStatus(
            StatusSources(
                config=DaemonConfig(
                    protected=ProtectedConfig(group="app"),
                    background=(SlotConfig(name="bg", group="bg"),),
                    service=ServiceConfig(socket=folder / "s"),
                    journal=JournalConfig(path=folder / "j"),
                ),
                node=cast("Node", self.node),
                engine=self.engine,
                leases=self.leases,
                commands=CommandHandler(
                    engine=self.engine, leases=self.leases, loader=PolicyLoader(None)
                ),
                link=link,
                senders=(),
                restarts=2,
                daemon_start_s=0.0,
            )
        )

    def missing(self) -> list[str]:
        return list(self.status.make(ticks=7, calm=True).missing)


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Case]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        yield Case(tmp_path, GuardianLink(ours, timeout_s=0.01))


def test_a_status_says_what_the_loop_knows(case: Case) -> None:
    status = case.status.make(ticks=7, calm=True)
    assert (status.ticks, status.calm, status.loop_restarts) == (7, True, 2)
    assert (list(status.slots), status.controller) == (["bg"], "none")
    assert list(status.missing) == ["io_max: no disk"]


def test_missing_signals_are_looked_for_again_after_a_while(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr("stallward.actuator.loop.status.time.monotonic", lambda: clock[0])
    case.missing()
    case.node.lacks = ()
    assert case.missing() == ["io_max: no disk"]
    assert case.node.asked == 1
    clock[0] += MISSING_S
    assert case.missing() == []


def test_a_change_of_the_latency_source_is_reported_at_once(case: Case) -> None:
    case.missing()
    case.node.trouble, case.node.lacks = "is silent", ("latency: is silent",)
    assert case.missing() == ["latency: is silent"]


def test_a_journal_that_takes_nothing_is_reported_at_once(case: Case) -> None:
    case.missing()
    with pytest.raises(JournalError):
        case.status._sources.link.hold(Stopped(999_999, 1))
    assert case.missing()[0].startswith("journal: The guardian did not take")
