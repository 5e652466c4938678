"""The daemon acts on real cgroup v2 under real pressure, and after any kill all is restored.

A daemon takes about a minute to start in the emulated machine, so each test starts few.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pressed_zone import MIB, Zone, wait_for
from sudden_death import kill_guardian_and_loop

import stallward.models
from stallward.actuator.client import ActuatorClient
from stallward.actuator.client.daemon_process import Daemon
from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.tables import (
    ControlConfig,
    JournalConfig,
    NodeConfig,
    ProtectedConfig,
    RecordConfig,
    ServiceConfig,
    SlotConfig,
)
from stallward.actuator.engine.engine import Engine
from stallward.actuator.errors import DaemonError
from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.journal.entries import JournalEntry
from stallward.actuator.journal.restore import restore
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.kernel.process_table import start_time_ticks
from stallward.actuator.node.node import Node
from stallward.actuator.record.frames import FRAMES_NAME, read_frames
from stallward.actuator.record.tick_record import TickRecord
from stallward.actuator.record.wire import TICK_RECORD
from stallward.agent.desired import DesiredState, ProcessRef, SlotDesire, Tuning
from stallward.agent.registry import make_controller
from stallward.proto.v1 import stallward_pb2 as pb

pytestmark = [pytest.mark.vm, pytest.mark.timeout(900)]

POLICY = Path(stallward.models.__file__).parent / "policies" / "default.onnx"
# A decision takes longer here than the 50 ms that it may take at ten ticks a second.
TICK_S = 1.0


def config_of(
    zone: Zone, controller: str = "none", budgets: Budgets | None = None
) -> DaemonConfig:
    """The configuration of a daemon for a zone."""
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
            default_controller="none",
            seed=1,
            read_processes=True,
            tick_period_s=TICK_S,
            calm_tick_period_s=TICK_S,
        ),
        guard=budgets or Budgets(lift_budgets=True),
    )


@contextlib.contextmanager
def running(config: DaemonConfig) -> Iterator[Daemon]:
    """Run a daemon, with time enough for its slow start in this machine."""
    daemon = Daemon(config)
    daemon.start(timeout_s=400)
    try:
        yield daemon
    finally:
        daemon.stop()


def records_of(config: DaemonConfig) -> list[TickRecord]:
    """The tick records that the daemon has written."""
    assert config.record is not None
    path = config.record.dir / FRAMES_NAME
    frames = read_frames(path) if path.exists() else ()
    return [TICK_RECORD.from_wire(pb.TickRecord.FromString(data)) for data in frames]


def full_state(zone: Zone) -> DesiredState:
    """A state with a pause, a limit, a stopped process and tuning."""
    pid = zone.processes[2].pid
    ticks = start_time_ticks(Path("/proc"), pid)
    assert ticks is not None
    return DesiredState(
        slots=(SlotDesire(paused=True, limit_bytes=8 * MIB),),
        tuning=Tuning(name="try", swappiness=77, dirty_ratio=33, dirty_background_ratio=7),
        stopped=(ProcessRef(pid=pid, start_time_ticks=ticks),),
    )


def hold(client: ActuatorClient, zone: Zone, before: dict[str, str]) -> None:
    """Apply the state until all of it is in force."""
    desired = full_state(zone)
    stopped = f"process {zone.processes[2].pid}"

    def has_reference() -> bool:
        with contextlib.suppress(DaemonError):
            tick = client.status().last_tick
            return tick is not None and tick.sample.slot_states[0].reference_bytes is not None
        return False

    def in_force() -> bool:
        with contextlib.suppress(DaemonError):
            client.apply(desired, lease_s=60.0, holder="test")
        now = zone.settings()
        kinds = {key.rpartition("/")[2] for key, value in now.items() if value != before.get(key)}
        return {"cgroup.freeze", "memory.high", "vm.swappiness"} <= kinds and (
            now[stopped].startswith("T")
        )

    # A limit refers to the memory that a group used while it ran. A group that a new loop pauses
    # in its first tick has no such reference, and would never be limited.
    assert wait_for(has_reference, 400.0), zone.settings()
    assert wait_for(in_force), zone.settings()


def gone(pid: int) -> bool:
    """Return whether a process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.fixture
def before(zone: Zone) -> dict[str, str]:
    """All settings of a zone whose background is slow enough for a daemon to start beside it."""
    for slot in zone.slots:
        zone.file(slot, "cpu.max").write_text("25000 100000")
    return zone.settings()


def press_until_the_daemon_acts(zone: Zone, config: DaemonConfig) -> None:
    """Put the zone under pressure and wait until the daemon acts."""
    rounds = zone.press()
    assert wait_for(lambda: any(acts(record) for record in records_of(config)), 120.0)
    assert wait_for(rounds.exists), "the application does not run"


def test_latd_acts_and_after_a_kill_of_loop_or_guardian_all_is_restored(
    zone: Zone, before: dict[str, str]
) -> None:
    config = config_of(zone, "latd")
    with running(config) as daemon, daemon.client() as client:
        press_until_the_daemon_acts(zone, config)
        hold(client, zone, before)
        loop = daemon.pids.loop
        assert loop is not None
        os.kill(loop, signal.SIGSTOP)  # it must not act again before the test looks
        os.kill(loop, signal.SIGKILL)
        assert wait_for(lambda: zone.untouched(before)), zone.settings()
        assert wait_for(lambda: daemon.pids.loop not in {None, loop})
        hold(client, zone, before)
        pids = daemon.pids
        os.kill(pids.guardian, signal.SIGKILL)
        assert wait_for(lambda: zone.untouched(before)), zone.settings()
        assert wait_for(lambda: all(gone(pid) for pid in pids.all))
    assert any(record.applied for record in records_of(config) if acts(record))


def test_the_policy_acts_and_after_a_kill_of_everything_the_next_start_restores(
    zone: Zone, before: dict[str, str]
) -> None:
    config = config_of(zone, f"onnx:path={POLICY}")
    with running(config) as daemon, daemon.client() as client:
        press_until_the_daemon_acts(zone, config)  # only the policy acts: the default is `none`
        hold(client, zone, before)
        pids = daemon.pids
        kill_guardian_and_loop(pids)
        assert wait_for(lambda: all(gone(pid) for pid in pids.all))
        time.sleep(1.0)
        assert not zone.untouched(before), "no process was left to restore"
    records = records_of(config)
    assert {r.decision.controller for r in records if acts(r) and not r.fallback} >= {"onnx"}
    with running(config_of(zone)):
        assert zone.untouched(before)


def acts(record: TickRecord) -> bool:
    """Return whether a tick pauses, stops or limits something."""
    granted = record.granted
    slots = any(slot.paused or slot.limit_bytes is not None for slot in granted.slots)
    return slots or bool(granted.stopped)


def thaws(frozen: list[bool]) -> int:
    """How often a group that was frozen was not at the next look."""
    return sum(was and not now for was, now in itertools.pairwise(frozen))


def test_the_pause_budgets_hold_with_a_real_freezer(zone: Zone, before: dict[str, str]) -> None:
    """The guard interrupts the pauses of a controller that always pauses everything."""
    budgets = Budgets(max_pause_s=2.0, min_run_s=1.0)
    config = config_of(zone, budgets=budgets)
    zone.press()
    sent: list[JournalEntry] = []
    node = Node(config, sent.append)
    engine = Engine(
        settings=node.settings(frozenset()),
        configured=make_controller("static:pause=all"),
        default=make_controller("none"),
    )
    frozen: list[bool] = []
    try:
        for sequence in range(60):  # three pauses take nine seconds
            started_s = time.monotonic()
            sample = node.read(sequence, started_s)
            outcome = engine.step(sample, late=False)
            node.apply(outcome.granted, sample, time.monotonic())
            frozen.append(bool(sample.slots[0].frozen))
            for state in sample.slot_states:
                assert state.paused_for_s <= budgets.max_pause_s + 1.0, "a tick is 0.25 s"
            if thaws(frozen) == 3:
                break
            time.sleep(max(0.0, 0.25 - (time.monotonic() - started_s)))
        assert thaws(frozen) >= 2, frozen
    finally:
        assert node.close()
    assert zone.untouched(before)
    assert restore(tuple(sent), Paths()) == ()


def test_what_two_applications_are_guaranteed_is_divided_and_given_back(
    zone: Zone, before: dict[str, str]
) -> None:
    first, second, background = zone.app, *zone.slots
    config = replace(
        config_of(zone),
        protected=(
            ProtectedConfig(name="first", group=first.name, slo_ms=10.0),
            ProtectedConfig(name="second", group=second.name, slo_ms=40.0),
        ),
        background=(SlotConfig(name="slot", group=background.name, floor_bytes=4 * MIB),),
    )
    zone.press()
    sent: list[JournalEntry] = []
    node = Node(config, sent.append)
    engine = Engine(
        settings=node.settings(frozenset()),
        configured=make_controller("partition"),
        default=make_controller("none"),
    )
    lows: list[int] = []
    try:
        for sequence in range(120):
            started_s = time.monotonic()
            sample = node.read(sequence, started_s)
            outcome = engine.step(sample, late=False)
            node.apply(outcome.granted, sample, time.monotonic())
            lows = [int(zone.read(group, "memory.low")) for group in (first, second)]
            if all(lows):
                break
            time.sleep(max(0.0, 0.25 - (time.monotonic() - started_s)))
        assert all(lows), outcome.granted
        assert sum(lows) <= (outcome.granted.protected_low_bytes or 0) + 2 * MIB, "by whole pages"
        assert [one.name for one in sample.applications] == ["first", "second"]
        held = sum(one.group.memory_usage_bytes or 0 for one in sample.applications)
        assert sample.protected.memory_usage_bytes == held
        assert zone.read(background, "memory.low") == "0"
    finally:
        assert node.close()
    assert zone.untouched(before)
    assert restore(tuple(sent), Paths()) == ()
