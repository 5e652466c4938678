"""Tests of the daemon when its guardian dies, its disk fails, or its owner dies."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from own_names import own_name
from sudden_death import kill_guardian_and_loop

from stallward.actuator.client import ActuatorClient
from stallward.actuator.client.daemon_process import Daemon
from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.load import config_toml
from stallward.actuator.config.tables import (
    ControlConfig,
    JournalConfig,
    NodeConfig,
    ProtectedConfig,
    RestartConfig,
    ServiceConfig,
    SlotConfig,
)
from stallward.actuator.errors import DaemonError, DaemonUnavailableError
from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.guardian.restore_command import restore_left
from stallward.actuator.journal.disk import Journal
from stallward.actuator.kernel.cgroups import Cgroup
from stallward.actuator.kernel.hierarchies import detect
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.kernel.process_table import start_time_ticks
from stallward.agent.desired import DesiredState, ProcessRef, SlotDesire, Tuning

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class QuietNode:
    """Groups with two sleeping processes, so that levers can move without any pressure."""

    zone: Cgroup
    bg: Cgroup
    frozen_pid: int
    stopped_pid: int
    folder: Path
    swappiness: int
    """What the machine had before the test."""

    def config(self, **changes: object) -> DaemonConfig:
        values: dict[str, object] = {
            "node": NodeConfig(zone=self.zone.name),
            "protected": ProtectedConfig(group=f"{self.zone.name}/app"),
            "background": (
                SlotConfig(name="bg", group=self.bg.name, floor_bytes=4 * MIB),
                SlotConfig(name="other", group=f"{self.zone.name}/other", floor_bytes=4 * MIB),
            ),
            "service": ServiceConfig(socket=self.folder / "s.sock"),
            "journal": JournalConfig(path=self.folder / "state/journal"),
            "control": ControlConfig(read_processes=True),
            "restart": RestartConfig(delay_s=0.02, max_delay_s=0.05, max_per_minute=1000),
            **changes,
        }
        # Else a restarted loop pauses nothing for a while.
        values.setdefault("guard", Budgets(lift_budgets=True))
        return DaemonConfig(**values)  # type: ignore[arg-type]

    @property
    def desired(self) -> DesiredState:
        """Pause one group, stop the process of the other, tune the node."""
        ticks = start_time_ticks(Path("/proc"), self.stopped_pid)
        assert ticks is not None
        return DesiredState(
            slots=(SlotDesire(paused=True), SlotDesire()),
            tuning=Tuning(name="try", swappiness=self.swappiness + 7),
            stopped=(ProcessRef(pid=self.stopped_pid, start_time_ticks=ticks),),
        )

    def held(self) -> tuple[bool, bool, bool]:
        """Return whether the group is frozen, the process stopped and the node tuned."""
        assert self.bg.unified_dir is not None
        state = Path(f"/proc/{self.stopped_pid}/stat").read_text().rpartition(")")[2].split()[0]
        swappiness = int(Path("/proc/sys/vm/swappiness").read_text())
        frozen = (self.bg.unified_dir / "cgroup.freeze").read_text().strip() == "1"
        return frozen, state == "T", swappiness != self.swappiness

    @property
    def foreign(self) -> Path:
        """A limit that the daemon may move, but does not."""
        other = self.zone.child("other")
        v2 = other.hierarchy.kind == "v2"
        assert other.memory_dir is not None
        return other.memory_dir / ("memory.high" if v2 else "memory.limit_in_bytes")

    def hold(self, client: ActuatorClient) -> None:
        """Put the desired state in force."""

        def applied() -> bool:
            try:
                client.apply(self.desired, lease_s=30.0, holder="test")
            except DaemonUnavailableError:
                return False
            return True

        assert wait_for(applied)
        assert wait_for(lambda: all(self.held())), self.held()


pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]


PATIENCE_S = 20.0
"""The time after which a wait is given up, far longer than it takes on a busy machine."""


def wait_for(condition: Callable[[], object], timeout_s: float = PATIENCE_S) -> bool:
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        if condition():
            return True
        time.sleep(0.01)
    return bool(condition())


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.fixture
def node(tmp_path: Path) -> Iterator[QuietNode]:
    zone = detect(Paths()).group(f"{own_name()}-quiet")
    groups = [zone.child(name) for name in ("app", "bg", "other")]
    for group in groups:
        group.create()
    sleepers = [subprocess.Popen(["sleep", "300"]) for _ in groups[1:]]
    try:
        for group, sleeper in zip(groups[1:], sleepers, strict=True):
            group.add_pid(sleeper.pid)
        frozen, stopped = (sleeper.pid for sleeper in sleepers)
        yield QuietNode(
            zone=zone,
            bg=groups[1],
            frozen_pid=frozen,
            stopped_pid=stopped,
            folder=tmp_path,
            swappiness=int(Path("/proc/sys/vm/swappiness").read_text()),
        )
    finally:
        for group in groups:
            group.kill()
        for sleeper in sleepers:
            sleeper.wait()
        for group in (*groups, zone):
            group.remove()


NOTHING = (False, False, False)


def test_a_stopped_guardian_is_noticed_and_everything_is_put_back(node: QuietNode) -> None:
    with Daemon(node.config()) as daemon, daemon.client() as client:
        node.hold(client)
        pids = daemon.pids
        assert pids.loop is not None
        os.kill(pids.guardian, signal.SIGSTOP)
        try:
            assert wait_for(lambda: node.held() == NOTHING), node.held()
            assert wait_for(lambda: gone(pids.loop or 0))
        finally:
            os.kill(pids.guardian, signal.SIGCONT)
        assert wait_for(lambda: daemon.pids.loop not in {None, pids.loop}), "and goes on after"
        node.hold(client)
    assert node.held() == NOTHING


def test_a_loop_that_thinks_for_too_long_does_not_make_a_pause_longer(node: QuietNode) -> None:
    budgets = Budgets(max_pause_s=1.0)
    with Daemon(node.config(guard=budgets)) as daemon, daemon.client() as client:
        node.hold(client)
        loop = daemon.pids.loop
        assert loop is not None
        os.kill(loop, signal.SIGSTOP)  # a controller that does not answer looks the same
        assert wait_for(lambda: not node.held()[0])
        assert wait_for(lambda: daemon.pids.loop not in {None, loop})
        last_words = daemon.last_words()
    assert "does not end a pause in time" in last_words, "not for a heartbeat that it missed"
    assert node.held() == NOTHING


def test_when_both_die_a_restore_finds_everything(node: QuietNode) -> None:
    config = node.config()
    with Daemon(config) as daemon, daemon.client() as client:
        node.hold(client)
        pids = daemon.pids
        kill_guardian_and_loop(pids)
        assert wait_for(lambda: all(gone(pid) for pid in pids.all))
        assert node.held() == (True, True, True), "nobody was left to restore"
    done = restore_left(config.journal.path, Paths(), wait_s=2.0)
    assert node.held() == NOTHING
    assert f"continued process {node.stopped_pid}" in done.undone
    assert restore_left(config.journal.path, Paths(), wait_s=2.0).undone == ()


def test_a_guardian_that_dies_alone_leaves_nothing_to_undo(node: QuietNode) -> None:
    config = node.config()
    with Daemon(config) as daemon, daemon.client() as client:
        node.hold(client)
        pids = daemon.pids
        os.kill(pids.guardian, signal.SIGKILL)
        assert wait_for(lambda: node.held() == NOTHING), node.held()
        assert wait_for(lambda: all(gone(pid) for pid in pids.all))
        left = Journal(config.journal.path, Paths())
        assert wait_for(lambda: left.load() == ())


@pytest.fixture
def shm() -> Iterator[Path]:
    folder = Path(f"/dev/shm/{own_name()}")
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


def test_settings_of_another_program_survive_a_crash(node: QuietNode) -> None:
    with Daemon(node.config()) as daemon, daemon.client() as client:
        node.hold(client)
        loop = daemon.pids.loop
        assert loop is not None
        theirs = str(64 * MIB)
        node.foreign.write_text(theirs)
        os.kill(loop, signal.SIGKILL)
        assert wait_for(lambda: node.held() == NOTHING), node.held()
        assert node.foreign.read_text().strip() == theirs
        assert wait_for(lambda: daemon.pids.loop not in {None, loop})
        node.hold(client)
        pids = daemon.pids
        os.kill(pids.guardian, signal.SIGKILL)
        assert wait_for(lambda: node.held() == NOTHING), node.held()
        assert wait_for(lambda: all(gone(pid) for pid in pids.all))
        assert node.foreign.read_text().strip() == theirs


def test_settings_of_another_program_survive_the_death_of_all_processes(
    node: QuietNode, shm: Path
) -> None:
    config = node.config(journal=JournalConfig(path=shm / "journal"))
    with Daemon(config) as daemon, daemon.client() as client:
        node.hold(client)
        pids = daemon.pids
        theirs = str(64 * MIB)
        node.foreign.write_text(theirs)
        kill_guardian_and_loop(pids)
        assert wait_for(lambda: all(gone(pid) for pid in pids.all))
    assert node.held() == (True, True, True), "nobody was left to restore"
    done = restore_left(config.journal.path, Paths(), wait_s=2.0)
    assert node.held() == NOTHING
    assert node.foreign.read_text().strip() == theirs
    moved = ("swappiness = ", "thawed ", f"continued process {node.stopped_pid}")
    assert [line for line in done.undone if not any(what in line for what in moved)] == []
    assert sorted(path.name for path in shm.iterdir()) == ["journal.lock", "journal.touched"]


def test_a_loop_that_is_started_again_pauses_soon(node: QuietNode) -> None:
    with Daemon(node.config(guard=Budgets())) as daemon, daemon.client() as client:
        for _ in range(3):
            node.hold(client)
            loop = daemon.pids.loop
            assert loop is not None
            os.kill(loop, signal.SIGKILL)
            assert wait_for(lambda: node.held() == NOTHING), node.held()
        # Each hold waits for 10 s at most; if the worst were assumed it would take 12.
    assert node.held() == NOTHING


def test_a_setting_that_cannot_be_journaled_is_not_changed_and_status_says_so(
    node: QuietNode,
) -> None:
    disk = node.folder / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "tmpfs", str(disk)]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("this machine lets nobody mount a tmpfs")
    remount = ["mount", "-o", "remount,bind,ro", str(disk)]
    try:
        subprocess.run(remount, check=True)
        config = node.config(journal=JournalConfig(path=disk / "journal"))
        with Daemon(config) as daemon, daemon.client() as client:
            client.apply(node.desired, lease_s=30.0, holder="test")
            assert wait_for(
                lambda: any(
                    "journal: Cannot write" in reason and "Read-only" in reason
                    for reason in client.status().missing
                )
            )
            assert node.held() == NOTHING
            subprocess.run([*remount[:2], "remount,bind,rw", str(disk)], check=True)
            assert wait_for(lambda: all(node.held())), "it goes on when it can"
            assert wait_for(lambda: not any("journal" in m for m in client.status().missing))
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
    assert node.held() == NOTHING


def test_a_journal_in_a_folder_that_cannot_be_is_a_mistake(node: QuietNode) -> None:
    journal = JournalConfig(path=Path("/proc/nowhere/journal"), memory_only=True)
    config = node.config(journal=journal)
    with pytest.raises(DaemonError, match="cannot be locked"):
        Daemon(config).start()


OWNER = """
import sys, time
from pathlib import Path
from stallward.actuator.config.load import load_config
from stallward.actuator.client.daemon_process import Daemon
daemon = Daemon(load_config(Path(sys.argv[1])))
daemon.start()
print(daemon._folder, *daemon.pids.all, flush=True)
time.sleep(60)
"""


def test_the_folder_of_a_killed_owner_goes_with_its_daemon(
    node: QuietNode, tmp_path: Path
) -> None:
    config_path = tmp_path / "daemon.toml"
    config_path.write_text(config_toml(node.config()))
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(config_path)], stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        folder, *pids = owner.stdout.readline().split()
        assert Path(folder).is_dir()
        owner.kill()
    assert wait_for(lambda: all(gone(int(pid)) for pid in pids))
    assert not Path(folder).exists()
