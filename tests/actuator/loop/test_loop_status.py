"""The status that the loop sends the service: cheap to make, and never out of date for long."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from stallward.actuator.cli.status_text import status_rows, status_values
from stallward.actuator.client.status import STATUS, DaemonStatus
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
from stallward.actuator.loop.tick import MISSING_S, LoopStatus, StatusSources
from stallward.actuator.node.node import Node
from stallward.agent.controller import NodeContext
from stallward.agent.desired import DesiredState, SlotDesire
from stallward.agent.registry import make_controller
from stallward.agent.sample import GroupSample, NodeSample, PsiTotals, Sample, SlotState


class FakeNode:
    """A node that lacks what the test has set, and counts how often it is asked."""

    hierarchy = Hierarchy()
    latencies: tuple[None, ...] = (None,)

    def __init__(self) -> None:
        self.levers = SimpleNamespace(plugins=(SimpleNamespace(name="file_pages"),))
        self.lacks: tuple[str, ...] = ("io_max: no disk",)
        self.trouble = ""
        self.asked = 0

    def passing_faults(self) -> tuple[str, ...]:
        return (self.trouble,)

    def problems(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.trouble,)))

    def missing(self) -> tuple[str, ...]:
        self.asked += 1
        return self.lacks

    def work_faults(self) -> tuple[str, ...]:
        return ("",)

    def pods(self, slot: int) -> tuple[str, ...]:
        return (f"work/a-{slot}", f"work/b-{slot}")


class Case:
    """The status of a loop on a fake node."""

    def __init__(self, folder: Path, link: GuardianLink, budgets: Budgets | None = None) -> None:
        self.node = FakeNode()
        context = NodeContext(zone_limit_bytes=1 << 30, slot_names=("bg",))
        self.engine = Engine(
            settings=EngineSettings(context=context, budgets=budgets or Budgets()),
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
                    engine=self.engine, leases=self.leases, loader=PolicyLoader()
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
    assert status.plugged_levers == ["file_pages"]
    assert (list(status.slots), status.controller) == (["bg"], "none")
    assert list(status.missing) == ["io_max: no disk"]
    assert [list(one.pods) for one in status.slot_pods] == [["work/a-0", "work/b-0"]]
    shown = STATUS.from_wire(status)
    assert dict(status_rows(shown))["pods of bg"] == "work/a-0, work/b-0"
    assert status_values(shown)["pods"] == [["work/a-0", "work/b-0"]]


def test_a_status_judges_by_the_newest_targets(case: Case, tmp_path: Path) -> None:
    def config(slo_ms: float) -> DaemonConfig:
        return DaemonConfig(
            protected=(
                ProtectedConfig(name="web", group="web", slo_ms=100.0),
                ProtectedConfig(name="db", group="db", slo_ms=slo_ms),
            ),
            background=(SlotConfig(name="bg", group="bg"),),
            service=ServiceConfig(socket=tmp_path / "s"),
            journal=JournalConfig(path=tmp_path / "j"),
        )

    case.node.latencies = (None, None)
    for slo_ms in (20.0, 50.0):
        case.status.reconfigure(config(slo_ms))
        shown = case.status.make(ticks=7, calm=True).applications
        assert [one.slo_ms for one in shown] == [100.0, slo_ms]


def test_missing_signals_are_looked_for_again_after_a_while(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr("stallward.actuator.loop.tick.time.monotonic", lambda: clock[0])
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
    assert list(case.status.make(ticks=8, calm=True).problems) == ["is silent"]


def test_a_journal_that_takes_nothing_is_reported_at_once(case: Case) -> None:
    case.missing()
    with pytest.raises(JournalError):
        case.status._sources.link.hold(Stopped(999_999, 1))
    assert case.missing()[0].startswith("journal: The guardian did not take")
    problems = case.status.make(ticks=7, calm=True).problems
    assert [text.partition(":")[0] for text in problems] == ["journal"], "no lack of the node"


def _status(tmp_path: Path, budgets: Budgets, *times_s: float) -> DaemonStatus:
    """The status of a loop whose client paused a group of a calm node at some times."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sample = Sample(
        sequence=0,
        time_s=0.0,
        node=NodeSample(memory_total_bytes=8 << 30, memory_available_bytes=4 << 30),
        zone=GroupSample(
            name="zone",
            psi=PsiTotals(memory_some_us=0, memory_full_us=0),
            memory_usage_bytes=1 << 20,
        ),
        protected=GroupSample(name="app", psi=PsiTotals(memory_some_us=0, memory_full_us=0)),
        slots=(GroupSample(name="bg", memory_usage_bytes=1 << 20),),
        slot_states=(SlotState(),),
    )
    with ours, theirs:
        case = Case(tmp_path, GuardianLink(ours, timeout_s=0.01), budgets)
        wish = DesiredState(slots=(SlotDesire(paused=True),))
        for time_s in times_s:
            case.engine.step(replace(sample, time_s=time_s), remote=wish)
        return STATUS.from_wire(case.status.make(ticks=len(times_s), calm=True))


def test_a_status_says_how_long_work_was_held_back_without_pressure(tmp_path: Path) -> None:
    budgets = Budgets(max_hold_without_pressure_share=0.01, pressure_lasts_s=10.0)
    for times_s, held_s, refusing, row in (
        ((), 0.0, False, "0 s of 18 s used up"),
        ((5.0, 8.0), 0.0, False, "0 s of 18 s used up, last sign of memory pressure 3 s ago"),
        (
            (5.0, 16.0, 36.0), 20.0, True,
            "20 s of 18 s used up, last sign of memory pressure 31 s ago, "
            "nothing is held back now",
        ),
    ):  # fmt: skip
        status = _status(tmp_path, budgets, *times_s)
        budget = status.hold_budget
        assert budget is not None
        assert budget.used_s == pytest.approx(held_s, abs=0.2)
        assert (budget.allowed_s, budget.refusing) == (18.0, refusing)
        assert dict(status_rows(status))["held without pressure"] == row
        assert status_values(status)["hold_budget"]["refusing"] is refusing


def test_a_status_says_that_nothing_bounds_holds_without_pressure(tmp_path: Path) -> None:
    status = _status(tmp_path, Budgets(max_hold_without_pressure_share=1.0), 5.0, 1e4)
    assert status.hold_budget is None
    assert dict(status_rows(status))["held without pressure"] == "no bound"
    assert status_values(status)["hold_budget"] is None
