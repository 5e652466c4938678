"""The whole daemon on a node without cgroups: real process trees, real kills."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stallward.actuator.client.daemon_process import Daemon
from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.tables import (
    ControlConfig,
    JournalConfig,
    NodeConfig,
    ProtectedConfig,
    RecordConfig,
    RestartConfig,
    ServiceConfig,
    SlotConfig,
)
from stallward.actuator.errors import DaemonError, DaemonUnavailableError
from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.kernel.process_spec import ProcessesConfig
from stallward.actuator.kernel.process_table import read_seen
from stallward.actuator.record.frames import FRAMES_NAME, read_frames
from stallward.actuator.record.wire import TICK_RECORD
from stallward.agent.desired import DesiredState, SlotDesire
from stallward.proto.v1 import stallward_pb2 as pb

pytestmark = pytest.mark.live

PROC = Path("/proc")
CHILDREN = 40
# Forks children, one of them behind a double fork in a session of its own; then goes on forking
# children that end, as a build does.
BATCH = """
import os, signal, sys, time
def wait():
    while True:
        signal.pause()
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for _ in range(int(sys.argv[1])):
    if os.fork() == 0:
        wait()
if os.fork() == 0:
    os.setsid()
    time.sleep(0.5)
    if os.fork() == 0:
        with open(sys.argv[2], "w") as file:
            file.write(str(os.getpid()))
        wait()
    os._exit(0)
while True:
    if os.fork() == 0:
        time.sleep(0.02)
        os._exit(0)
    time.sleep(0.05)
"""
PAUSED = DesiredState(slots=(SlotDesire(paused=True),))


class Box:
    """An application, a batch job that forks for ever, and a node that has no cgroups."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "cgroup").mkdir()
        self.mark = f"marked-{os.getpid()}"
        self.app = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        self.batch = subprocess.Popen(
            [sys.executable, "-S", "-c", BATCH, str(CHILDREN), str(folder / "d.pid"), self.mark],
            start_new_session=True,
        )

    def config(self, controller: str = "none", **changes: object) -> DaemonConfig:
        batch = ProcessesConfig(command=f"{self.mark}$")
        values: dict[str, object] = {
            "node": NodeConfig(cgroup=self.folder / "cgroup"),
            "protected": ProtectedConfig(processes=ProcessesConfig(pids=(self.app.pid,))),
            "background": (SlotConfig(name="batch", processes=batch),),
            "service": ServiceConfig(socket=self.folder / "s.sock"),
            "journal": JournalConfig(path=self.folder / "journal"),
            "record": RecordConfig(dir=self.folder / "record"),
            "control": ControlConfig(controller=controller, seed=1),
            "restart": RestartConfig(delay_s=0.02, max_delay_s=0.05, max_per_minute=1000),
        }
        return DaemonConfig(**{**values, **changes})  # type: ignore[arg-type]

    def members(self) -> dict[int, bool]:
        """Each process of the batch job by its pid, and whether it is stopped."""
        members = {}
        for name in os.listdir(PROC):  # noqa: PTH208 - names only
            seen = read_seen(PROC, int(name)) if name.isdigit() else None
            if seen is None or seen.ended:
                continue
            try:
                command = (PROC / name / "cmdline").read_bytes()
            except OSError:
                continue
            if self.mark.encode() in command and b"-S\0" in command:
                members[seen.pid] = seen.stopped
        return members

    def stopped(self) -> int:
        return sum(self.members().values())

    def still(self) -> bool:
        """Return whether all of it is stopped, so that nothing forks any more."""
        members = self.members()
        return len(members) > CHILDREN and all(members.values())

    def end(self) -> None:
        for _ in range(20):
            members = self.members()
            for pid in members:
                with contextlib.suppress(ProcessLookupError):  # its children end by themselves
                    os.kill(pid, signal.SIGKILL)
            if not members:
                break
        self.app.kill()
        self.app.wait()
        self.batch.wait()


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    made = Box(tmp_path)
    try:
        yield made
    finally:
        made.end()


PATIENCE_S = 20.0
"""The time after which a wait is given up, far longer than it takes on a busy machine."""


def wait_for(condition: Callable[[], object], timeout_s: float = PATIENCE_S) -> bool:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.01)
    return True


def daemonised(box: Box) -> int:
    """The process behind the double fork, once it is there and orphaned."""
    path = box.folder / "d.pid"
    assert wait_for(lambda: path.exists() and path.read_text())
    pid = int(path.read_text())
    assert wait_for(lambda: (seen := read_seen(PROC, pid)) is not None and seen.parent == 1)
    return pid


def test_a_lease_stops_a_whole_tree_and_it_runs_again(box: Box) -> None:
    with Daemon(box.config()) as daemon, daemon.client() as client:
        orphan = daemonised(box)
        status = client.status()
        assert status.node_kind == "none"
        assert any("a process tree has none of its own" in reason for reason in status.missing)
        client.apply(PAUSED, lease_s=1.5, holder="test")
        assert wait_for(box.still)
        assert box.members()[orphan], "also what forked twice and led a session"
        app = read_seen(PROC, box.app.pid)
        assert app is not None
        assert not app.stopped
        assert wait_for(lambda: box.stopped() == 0)
        client.apply(PAUSED, lease_s=30.0, holder="test")
        assert wait_for(box.still)
    assert box.stopped() == 0, "an orderly stop continues everything"


def test_command_lines_that_were_made_for_a_pattern_keep_no_loop_from_ticking(box: Box) -> None:
    """By Python's own engine each search takes seconds, and no thread runs meanwhile."""
    words = ["java", "-jar", "spark"] * 250
    sleep = [sys.executable, "-S", "-c", "import time; time.sleep(1000)", *words]
    hostile = [subprocess.Popen(sleep) for _ in range(5)]
    pattern = ProcessesConfig(command=r"java .*-jar .*spark.*\.jar")
    config = box.config(background=(SlotConfig(name="spark", processes=pattern),))
    try:
        with Daemon(config) as daemon, daemon.client() as client:
            assert wait_for(lambda: client.status().ticks >= 30), daemon.last_words()
            assert client.status().loop_restarts == 0
    finally:
        for process in hostile:
            process.kill()
            process.wait()


def test_the_guard_ends_a_pause_of_a_tree(box: Box) -> None:
    with Daemon(box.config("static:pause=all")) as daemon:
        assert wait_for(box.still)
        assert wait_for(lambda: box.stopped() == 0), daemon.last_words()
    assert box.stopped() == 0
    records = [
        TICK_RECORD.from_wire(pb.TickRecord.FromString(data))
        for data in read_frames(box.folder / "record" / FRAMES_NAME)
    ]
    longest_s = max(record.sample.slot_states[0].paused_for_s for record in records)
    sys.stdout.write(f"the longest pause took {longest_s:.2f} s of the 5 s that it may\n")
    frozen = [record for record in records if record.sample.slots[0].frozen]
    assert frozen
    assert any(not record.granted.slot(0).paused for record in frozen), "the guard ended the pause"
    assert all(record.sample.protected.memory_usage_bytes for record in records[1:])


def test_kills_of_the_loop_leave_no_process_stopped(box: Box) -> None:
    rng = random.Random(7)
    lifted = Budgets(lift_budgets=True)  # else a restarted loop pauses nothing for a while
    with Daemon(box.config(guard=lifted)) as daemon, daemon.client() as client:
        for _ in range(12):
            assert wait_for(lambda: _applied(client)), daemon.last_words()
            pid = daemon.pids.loop
            assert pid is not None
            if rng.random() < 0.8:
                assert wait_for(lambda: box.stopped() > CHILDREN)
            time.sleep(rng.uniform(0.0, 0.05))
            os.kill(pid, signal.SIGKILL)
            assert wait_for(lambda: box.stopped() == 0), box.members()
    assert box.stopped() == 0


def test_a_killed_guardian_leaves_no_process_stopped(box: Box) -> None:
    with Daemon(box.config()) as daemon, daemon.client() as client:
        assert _applied(client)
        assert wait_for(box.still)
        os.kill(daemon.pids.guardian, signal.SIGKILL)
        assert wait_for(lambda: box.stopped() == 0), box.members()


def test_a_configuration_with_groups_is_refused_with_the_next_step(box: Box) -> None:
    config = box.config(background=(SlotConfig(name="batch", group="batch"),))
    with pytest.raises(DaemonError, match=r"(?s)names the group 'batch'.*Name processes instead"):
        Daemon(config).start()


def _applied(client: object) -> bool:
    try:
        client.apply(PAUSED, lease_s=10.0, holder="test")  # type: ignore[attr-defined]
    except DaemonUnavailableError:
        return False
    return True
