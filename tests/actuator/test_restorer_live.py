"""A restorer, and a daemon whose container is killed as the kubelet does it, all at once.

The groups are real and have a kubelet's shape. The daemon and the restorer are in groups of their
own, like two containers of one pod.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest
from own_names import own_name
from pod_sandbox import MIB, UNLIMITED, PodSandbox, frozen, limit_of, pod_sandbox

from stallward.actuator.client import ActuatorClient
from stallward.actuator.client.daemon_process import Daemon
from stallward.actuator.config.tables import JournalConfig
from stallward.actuator.guardian.restorer import RestorerOptions
from stallward.actuator.ipc.options import Modules
from stallward.actuator.kernel.cgroups import Cgroup
from stallward.actuator.kernel.hierarchies import detect
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.runtime.process_start import command_line
from stallward.actuator.targets.kubelet_groups import Driver
from stallward.actuator.targets.qos import Qos
from stallward.agent.desired import DesiredState, SlotDesire

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]

PATIENCE_S = 20.0
HELD = DesiredState(slots=(SlotDesire(paused=True, limit_bytes=12 * MIB), SlotDesire()))
APP = {"annotations": {"stallward.io/role": "protected"}, "qos": Qos.BURSTABLE}


def wait_for(condition: Callable[[], object]) -> bool:
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        if condition():
            return True
        time.sleep(0.01)
    return bool(condition())


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPod:
    """The groups of the daemon's own pod, one for each container."""

    pod: Cgroup
    daemon: Cgroup
    restorer: Cgroup

    def enter(self, group: Cgroup, process: psutil.Process) -> None:
        """Move a process with everything below it into the group of a container."""
        for one in (process, *process.children(recursive=True)):
            group.add_pid(one.pid)

    def kill(self, group: Cgroup) -> None:
        """End a container, or the whole pod, as its runtime does: by one write, all at once."""
        assert group.unified_dir is not None
        (group.unified_dir / "cgroup.kill").write_text("1")
        assert wait_for(lambda: not group.populated())


@pytest.fixture
def own() -> Iterator[OwnPod]:
    pod = detect(Paths()).group(f"{own_name()}-own")
    made = OwnPod(pod=pod, daemon=pod.child("daemon"), restorer=pod.child("restorer"))
    try:
        for group in (made.daemon, made.restorer):
            group.create()
        yield made
    finally:
        for group in (made.daemon, made.restorer):
            group.kill()
            group.remove()
        pod.remove()


@pytest.fixture
def run_dir() -> Iterator[Path]:
    """A folder in memory, as the node's /run is, which both containers mount."""
    folder = Path(f"/dev/shm/{own_name()}")
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def box(tmp_path: Path) -> Iterator[PodSandbox]:
    with pod_sandbox(tmp_path, Driver.SYSTEMD) as made:
        yield made


def restorer_of(own: OwnPod, journal: Path) -> subprocess.Popen[bytes]:
    """Start a restorer in its container, and wait until it watches."""
    options = RestorerOptions(config=Path("/nowhere"), journal=journal)
    command = command_line(Modules().restorer, options)
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    own.enter(own.restorer, psutil.Process(process.pid))
    assert process.stderr is not None
    assert b"watching" in process.stderr.readline()
    return process


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A background pod that a daemon in a container holds paused and limited."""

    group: Cgroup
    journal: Path
    own: OwnPod

    def is_free(self) -> bool:
        return not frozen(self.group) and limit_of(self.group) in UNLIMITED


def _is_known(client: ActuatorClient) -> bool:
    """Whether the loop knows what the first slot uses while it runs."""
    tick = client.status().last_tick
    return tick is not None and tick.sample.slot_states[0].reference_bytes is not None


@pytest.fixture
def held(box: PodSandbox, own: OwnPod, run_dir: Path) -> Iterator[Held]:
    journal = run_dir / "journal"
    config = replace(box.config(), journal=JournalConfig(path=journal))
    background = box.start(1)
    box.start(2, "app", **APP)
    with Daemon(config) as daemon:
        own.enter(own.daemon, psutil.Process(daemon.pids.guardian))
        with daemon.client() as client:
            # A group that is paused before the loop has seen it run has no reference for a limit.
            assert wait_for(lambda: _is_known(client)), daemon.last_words()
            client.apply(HELD, lease_s=60.0, holder="test")
            held = Held(group=background, journal=journal, own=own)
            assert wait_for(lambda: frozen(background)), daemon.last_words()
            assert wait_for(lambda: limit_of(background) not in UNLIMITED)
        yield held


def test_the_restorer_undoes_everything_when_the_daemons_container_is_killed(held: Held) -> None:
    with restorer_of(held.own, held.journal) as restorer:
        assert not held.is_free(), "it leaves a living daemon alone"
        held.own.kill(held.own.daemon)
        assert wait_for(held.is_free)
        restorer.terminate()
        assert restorer.wait(PATIENCE_S) == 0
    assert not held.journal.exists()


def test_after_a_forced_deletion_the_restorer_ends_when_nothing_is_left(held: Held) -> None:
    """The kubelet kills the daemon's container first and then asks the restorer, a sidecar."""
    with restorer_of(held.own, held.journal) as restorer:
        held.own.kill(held.own.daemon)
        restorer.send_signal(signal.SIGTERM)
        assert restorer.wait(PATIENCE_S) == 0
        assert held.is_free(), "before it ends, not after"


def test_a_restorer_that_is_killed_with_the_daemon_is_followed_by_one_that_undoes(
    held: Held,
) -> None:
    with restorer_of(held.own, held.journal) as restorer:
        held.own.kill(held.own.restorer)
        held.own.kill(held.own.daemon)
    assert restorer.returncode == -signal.SIGKILL
    assert not held.is_free(), "nobody was left to restore"
    with restorer_of(held.own, held.journal) as restorer:
        assert wait_for(held.is_free)
        restorer.terminate()
        assert restorer.wait(PATIENCE_S) == 0
