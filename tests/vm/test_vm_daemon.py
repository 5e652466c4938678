"""The daemon on real cgroup v2 under real pressure: it acts, and whatever dies, all is undone.

Emulated, a daemon takes half a minute to start, so each test makes the most of the one it has.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pressed_zone import MIB, Zone, wait_for

import stallward.models
from stallward.actuator.client import ActuatorClient
from stallward.actuator.config import (
    ControlConfig,
    DaemonConfig,
    JournalConfig,
    NodeConfig,
    ProtectedConfig,
    RecordConfig,
    ServiceConfig,
    SlotConfig,
)
from stallward.actuator.convert import record_from_wire
from stallward.actuator.daemon import Daemon
from stallward.actuator.engine import Engine
from stallward.actuator.errors import DaemonError
from stallward.actuator.frames import FRAMES_NAME, read_frames
from stallward.actuator.guard import Budgets
from stallward.actuator.journal import JournalEntry, restore
from stallward.actuator.node import Node
from stallward.actuator.paths import Paths
from stallward.actuator.process_identity import start_time_ticks
from stallward.actuator.record import TickRecord
from stallward.agent.controller import make_controller
from stallward.agent.desired import DesiredState, ProcessRef, SlotDesire, Tuning
from stallward.proto.v1 import stallward_pb2 as pb

pytestmark = [pytest.mark.vm, pytest.mark.timeout(600)]

POLICY = Path(stallward.models.__file__).parent / "policies" / "default.onnx"
# Deciding takes longer here than the 50 ms that are allowed at ten ticks a second.
TICK_S = 1.0


def config_of(
    zone: Zone, controller: str = "none", budgets: Budgets | None = None
) -> DaemonConfig:
    """A daemon's configuration for a zone."""
    return DaemonConfig(
        node=NodeConfig(zone=zone.zone.name),
        protected=ProtectedConfig(group=zone.app.name),
        background=tuple(
            SlotConfig(name=f"slot{i}", group=slot.name, floor_bytes=4 * MIB)
            for i, slot in enumerate(zone.slots)
        ),
        service=ServiceConfig(socket=zone.folder / "s.sock"),
        journal=JournalConfig(path=zone.folder / "journal"),
        record=RecordConfig(dir=zone.folder / "record"),
        control=ControlConfig(
            controller=controller,
            seed=1,
            read_processes=True,
            tick_period_s=TICK_S,
            calm_tick_period_s=TICK_S,
        ),
        guard=budgets or Budgets(lift_budgets=True),
    )


@contextlib.contextmanager
def running(config: DaemonConfig) -> Iterator[Daemon]:
    """A daemon, given the time that it takes here to start."""
    daemon = Daemon(config)
    daemon.start(timeout_s=300)
    try:
        yield daemon
    finally:
        daemon.stop()


def records_of(config: DaemonConfig) -> list[TickRecord]:
    """What the daemon has recorded."""
    assert config.record is not None
    path = config.record.dir / FRAMES_NAME
    frames = read_frames(path) if path.exists() else ()
    return [record_from_wire(pb.TickRecord.FromString(data)) for data in frames]


def everything(zone: Zone) -> DesiredState:
    """A pause with a limit, a stopped process and tuning."""
    pid = zone.processes[2].pid
    ticks = start_time_ticks(Path("/proc"), pid)
    assert ticks is not None
    return DesiredState(
        slots=(SlotDesire(paused=True, limit_bytes=8 * MIB),),
        tuning=Tuning(name="try", swappiness=77, dirty_ratio=33, dirty_background_ratio=7),
        stopped=(ProcessRef(pid=pid, start_time_ticks=ticks),),
    )


def hold(client: ActuatorClient, zone: Zone, before: dict[str, str]) -> None:
    """Have everything in force."""
    desired = everything(zone)

    def held() -> bool:
        with contextlib.suppress(DaemonError):
            client.apply(desired, lease_s=60.0, holder="test")
        kinds = {
            key.rpartition("/")[2].split()[0]
            for key, value in zone.settings().items()
            if value != before[key]
        }
        return {"cgroup.freeze", "memory.high", "vm.swappiness", "process"} <= kinds

    assert wait_for(held, 120.0), client.status()


def gone(pid: int) -> bool:
    """Whether a process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_after_a_kill_of_the_loop_and_of_the_guardian_all_is_back(zone: Zone) -> None:
    zone.press()
    before = zone.settings()
    with running(config_of(zone)) as daemon, daemon.client() as client:
        hold(client, zone, before)
        loop = daemon.pids.loop
        assert loop is not None
        os.kill(loop, signal.SIGKILL)
        assert wait_for(lambda: zone.settings() == before), zone.settings()
        assert wait_for(lambda: daemon.pids.loop not in {None, loop}, 120.0)
        assert wait_for(lambda: daemon.pids.service is not None)
        hold(client, zone, before)
        pids = daemon.pids
        os.kill(pids.guardian, signal.SIGKILL)
        assert wait_for(lambda: zone.settings() == before), zone.settings()
        assert wait_for(lambda: all(gone(pid) for pid in pids.all))


def test_after_a_kill_of_everything_the_next_start_restores(zone: Zone) -> None:
    zone.press()
    before = zone.settings()
    config = config_of(zone)
    with running(config) as daemon, daemon.client() as client:
        hold(client, zone, before)
        pids = daemon.pids
        for number in (signal.SIGSTOP, signal.SIGKILL):  # nobody sees another die
            for pid in pids.all:
                os.kill(pid, number)
        assert wait_for(lambda: all(gone(pid) for pid in pids.all))
        time.sleep(1.0)
        assert zone.settings() != before, "nobody was left to restore"
    with running(config):
        assert zone.settings() == before


@pytest.mark.parametrize("controller", ["latd", f"onnx:path={POLICY}"], ids=["latd", "onnx"])
def test_a_controller_acts_under_pressure_and_all_is_undone(
    zone: Zone, controller: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rounds = zone.press()
    before = zone.settings()
    alone = rounds_in(rounds, 10.0)
    config = config_of(zone, controller)
    with running(config):
        assert wait_for(lambda: any(acts(record) for record in records_of(config)), 120.0)
        helped = rounds_in(rounds, 10.0)
    assert zone.settings() == before
    records = records_of(config)
    with capsys.disabled():  # no figure to assert on an emulated machine, but one to look at
        print(  # noqa: T201
            f"\n{controller[:4]}: acted in {sum(map(acts, records))} of {len(records)} ticks, "
            f"{sum(r.fallback for r in records)} fallbacks; the application did {alone} rounds "
            f"in 10 s without and {helped} with it"
        )
    assert any(record.applied for record in records if acts(record))


def acts(record: TickRecord) -> bool:
    """Whether a tick pauses, stops or limits something."""
    granted = record.granted
    slots = any(slot.paused or slot.limit_bytes is not None for slot in granted.slots)
    return slots or bool(granted.stopped)


def rounds_in(path: Path, seconds: float) -> int:
    """Rounds of work that the application does in a while."""
    first = int(path.read_text() or 0) if path.exists() else 0
    time.sleep(seconds)
    return int(path.read_text() or 0) - first


def test_the_pause_budgets_hold_with_a_real_freezer(zone: Zone) -> None:
    """A controller that wants everything paused for ever is let have it in pieces."""
    budgets = Budgets(max_pause_s=2.0, min_run_s=1.0)
    config = config_of(zone, budgets=budgets)
    zone.press()
    before = zone.settings()
    sent: list[JournalEntry] = []
    node = Node(config, sent.append)
    engine = Engine(
        settings=node.settings(frozenset()),
        rule=make_controller("static:pause=all"),
        default=make_controller("none"),
    )
    frozen: list[bool] = []
    try:
        for sequence in range(60):
            started_s = time.monotonic()
            sample = node.read(sequence, started_s)
            outcome = engine.step(sample, late=False)
            node.apply(outcome.granted, sample, time.monotonic())
            frozen.append(bool(sample.slots[0].frozen))
            for state in sample.slot_states:
                assert state.paused_for_s <= budgets.max_pause_s + 1.0, "a tick is 0.25 s"
            time.sleep(max(0.0, 0.25 - (time.monotonic() - started_s)))
        thaws = sum(was and not now for was, now in itertools.pairwise(frozen))
        assert thaws >= 2, frozen
        assert any(frozen)
    finally:
        assert node.close()
    assert zone.settings() == before
    assert restore(tuple(sent), Paths()) == ()
