"""The daemon and the threads of a real application: consent, stop, Ctrl-C and kill -9."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from sudden_death import kill_guardian_and_loop

from stallward.actuator.client import ActuatorClient
from stallward.actuator.client.daemon_process import Daemon
from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.tables import (
    ControlConfig,
    JournalConfig,
    NodeConfig,
    ProtectedConfig,
    RestartConfig,
    ServiceConfig,
    SlotConfig,
)
from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.kernel.hierarchies import detect
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.kernel.process_table import start_time_ticks
from stallward.actuator.kernel.scheduling import (
    CPUS,
    NICE,
    SLICE,
    read_value,
    thread_ids,
    why_no_slice,
)
from stallward.agent.desired import DesiredState
from stallward.agent.errors import StallwardError
from stallward.agent.threads import ThreadDesire, ThreadRef

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(bool(why_no_slice()), reason=why_no_slice() or "it can"),
]
HOLDER = "test"
PATIENCE_S = 20.0
ONE_CPU = min(os.sched_getaffinity(0))

# Two threads that want a CPU all the time, and one that waits for them.
BUSY = """
import threading
def spin():
    while True:
        sum(range(1000))
for _ in range(2):
    threading.Thread(target=spin, daemon=True).start()
threading.Event().wait()
"""


def wait_for(condition: Callable[[], object]) -> bool:
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        if condition():
            return True
        time.sleep(0.02)
    return bool(condition())


@dataclass(frozen=True, slots=True, kw_only=True)
class BusyNode:
    """An application with threads that compete, and a background group."""

    pid: int
    groups: tuple[str, str, str]
    folder: Path

    def config(self, *, allowed: bool = True, controller: str = "none") -> DaemonConfig:
        zone, app, hog = self.groups
        return DaemonConfig(
            node=NodeConfig(zone=zone),
            protected=ProtectedConfig(group=app),
            background=(SlotConfig(name="hog", group=hog),),
            service=ServiceConfig(socket=self.folder / "s.sock"),
            journal=JournalConfig(path=self.folder / "journal"),
            control=ControlConfig(controller=controller, calm_tick_period_s=0.1),
            guard=Budgets(allow_protected_threads=allowed),
            restart=RestartConfig(delay_s=0.02, max_delay_s=0.05, max_per_minute=1000),
        )

    @property
    def tids(self) -> tuple[int, ...]:
        return thread_ids(Path("/proc"), self.pid)

    def values(self) -> dict[int, tuple[str | None, ...]]:
        return {tid: tuple(read_value(w, tid) for w in (SLICE, NICE, CPUS)) for tid in self.tids}

    def wanted(self) -> DesiredState:
        """A short timeslice, more weight and one CPU for one thread, paid by the other two."""
        nices = (1, -1, 1)
        return DesiredState(
            protected_threads=tuple(
                ThreadDesire(
                    thread=ThreadRef(
                        tid=tid, start_time_ticks=start_time_ticks(Path("/proc"), tid) or 0
                    ),
                    slice_us=300 if nice < 0 else None,
                    nice=nice,
                    cpus=(ONE_CPU,) if nice < 0 else (),
                )
                for tid, nice in zip(self.tids, nices, strict=True)
            )
        )


@pytest.fixture
def busy_node(tmp_path: Path) -> Iterator[BusyNode]:
    zone = detect(Paths()).group(f"stallward-test-{os.getpid()}-threads")
    app, hog = zone.child("app"), zone.child("hog")
    process = subprocess.Popen([sys.executable, "-c", BUSY])
    try:
        for group in (zone, app, hog):
            group.create()
        app.add_pid(process.pid)
        assert wait_for(lambda: len(thread_ids(Path("/proc"), process.pid)) == 3)
        names = (zone.name, app.name, hog.name)
        yield BusyNode(pid=process.pid, groups=names, folder=tmp_path)
    finally:
        process.kill()
        process.wait()
        for group in (app, hog, zone):
            group.remove()


def hold(client: ActuatorClient, node: BusyNode, before: object) -> None:
    """Hold the wanted state until every thread has it."""

    def held() -> bool:
        try:
            client.apply(node.wanted(), lease_s=30.0, holder=HOLDER)
        except StallwardError:
            return False
        now = node.values()
        return now[node.tids[1]] == ("300", "-1", str(ONE_CPU)) and now[node.tids[0]][1] == "1"

    assert node.values() == before
    assert wait_for(held), node.values()


def test_threads_are_moved_and_put_back_on_release_and_stop(busy_node: BusyNode) -> None:
    before = busy_node.values()
    with Daemon(busy_node.config()) as daemon, daemon.client() as client:
        hold(client, busy_node, before)
        client.release(holder=HOLDER)
        assert wait_for(lambda: busy_node.values() == before), busy_node.values()
        hold(client, busy_node, before)
    assert busy_node.values() == before


def test_ctrl_c_puts_the_threads_back(busy_node: BusyNode) -> None:
    before = busy_node.values()
    with Daemon(busy_node.config()) as daemon, daemon.client() as client:
        hold(client, busy_node, before)
        os.kill(daemon.pids.guardian, signal.SIGINT)
        assert wait_for(lambda: busy_node.values() == before), busy_node.values()


@pytest.mark.parametrize("who", ["loop", "guardian"])
def test_a_kill_of_either_process_puts_the_threads_back(busy_node: BusyNode, who: str) -> None:
    before = busy_node.values()
    with Daemon(busy_node.config()) as daemon, daemon.client() as client:
        hold(client, busy_node, before)
        pid = getattr(daemon.pids, who)
        os.kill(pid, signal.SIGKILL)
        assert wait_for(lambda: busy_node.values() == before), busy_node.values()


def test_threads_of_a_killed_daemon_are_put_back_at_the_next_start(busy_node: BusyNode) -> None:
    before = busy_node.values()
    with Daemon(busy_node.config()) as daemon, daemon.client() as client:
        hold(client, busy_node, before)
        kill_guardian_and_loop(daemon.pids)
        time.sleep(0.3)
        assert busy_node.values() != before, "nobody was left to restore"
    with Daemon(busy_node.config()):
        assert busy_node.values() == before


def test_the_guard_refuses_without_consent(busy_node: BusyNode) -> None:
    before = busy_node.values()
    config = busy_node.config(allowed=False)
    with Daemon(config) as daemon, daemon.client() as client:
        answer = client.apply(busy_node.wanted(), lease_s=5.0, holder=HOLDER)
        assert answer.granted.protected_threads == ()
        assert answer.guard_notes == (
            "threads of the protected group: the configuration does not allow it",
        )
        time.sleep(0.5)
        assert busy_node.values() == before


@pytest.mark.parametrize("controller", ["dasec", "bvt"])
def test_a_controller_of_threads_moves_them_and_leaves_nothing(
    busy_node: BusyNode, controller: str
) -> None:
    before = busy_node.values()
    with Daemon(busy_node.config(controller=controller)) as daemon, daemon.client() as client:
        ticks = client.watch()
        moved = False
        for _, tick in zip(range(100), ticks, strict=False):
            moved = moved or bool(tick.record.granted.protected_threads)
            if moved and busy_node.values() != before:
                break
        assert moved
        assert wait_for(lambda: busy_node.values() != before)
    assert busy_node.values() == before
