"""The examples of docs/how-to/use-the-client.md, run as they stand.

Only the path of the daemon's socket is another one. The first runs on a whole daemon that changes
nothing, the others on the real service with a loop whose time passes as fast as it is asked for.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from policy_loop import Loop
from service_without_loop import Service

from stallward.actuator.client import ActuatorClient, Mode
from stallward.actuator.client.daemon_process import Daemon
from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.tables import (
    ControlConfig,
    JournalConfig,
    NodeConfig,
    PolicyConfig,
    ProtectedConfig,
    ServiceConfig,
    SlotConfig,
)
from stallward.actuator.ipc.channels import frame_tick
from stallward.actuator.kernel.process_spec import ProcessesConfig
from stallward.models.registry import find_policy
from stallward.proto.v1 import stallward_pb2 as pb

PAGE = Path(__file__).parents[2] / "docs/how-to/use-the-client.md"
SOCKET = "/run/stallward/actuator.sock"
MIB = 1 << 20
WAIT_S = 30.0


def run_example(heading: str, socket: Path) -> None:
    """Run the program below a heading of the page, in the current folder."""
    section = PAGE.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    found = re.search(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert found is not None, heading
    assert SOCKET in found.group(1)
    exec(compile(found.group(1).replace(SOCKET, str(socket)), heading, "exec"), {})


def test_every_example_of_the_page_is_run() -> None:
    headings = re.findall(r"^## (.*)$", PAGE.read_text(), re.MULTILINE)
    here = Path(__file__).read_text()
    assert len(headings) == 4
    assert [one for one in headings if f'run_example("{one}"' not in here] == []


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Path]:
    """The socket of a daemon that protects one idle process from another, and changes nothing."""
    with contextlib.ExitStack() as stack:
        pids = []
        for _ in range(2):
            idle = stack.enter_context(subprocess.Popen(["sleep", "600"], start_new_session=True))
            stack.callback(idle.kill)
            pids.append(idle.pid)
        (tmp_path / "cgroup").mkdir()
        config = DaemonConfig(
            node=NodeConfig(cgroup=tmp_path / "cgroup", proc=node_of(tmp_path / "proc", pids)),
            protected=ProtectedConfig(processes=ProcessesConfig(pids=(pids[0],))),
            background=(SlotConfig(name="batch", processes=ProcessesConfig(pids=(pids[1],))),),
            control=ControlConfig(dry_run=True),
            service=ServiceConfig(socket=tmp_path / "s"),
            journal=JournalConfig(path=tmp_path / "journal"),
            policy=PolicyConfig(store=tmp_path / "policies"),
        )
        stack.enter_context(Daemon(config))
        yield tmp_path / "s"


def node_of(proc: Path, pids: list[int]) -> Path:
    """A /proc of these processes alone.

    It has no kernel settings, of which a machine's daemons must be one: others may run beside it.
    """
    proc.mkdir()
    for name in ("meminfo", "pressure", "self", "stat", "vmstat", *map(str, pids)):
        (proc / name).symlink_to(Path("/proc") / name)
    return proc


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with a policy, as the examples expect it."""
    (tmp_path / "build").mkdir()
    shutil.copy(find_policy("default"), tmp_path / "build/policy.onnx")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("here")
def test_push_and_activate(daemon: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_example("Push a policy and activate it", daemon)
    assert "decides (sha256 " in capsys.readouterr().out
    with ActuatorClient(daemon) as client:
        (stored,) = client.policies()
        status = client.status()
        assert stored.name == "november"
        assert status.mode is Mode.ACTIVE
        assert status.policy is not None
        assert status.policy.sha256 == stored.sha256


class Node:
    """A service whose loop sends ticks of the node's time, however fast that passes."""

    def __init__(self, service: Service, socket: Path) -> None:
        self.socket = socket
        self.loop = Loop(service)
        self.second = 1
        self._over = threading.Event()
        self._ticking: threading.Thread | None = None
        with ActuatorClient(socket) as client:
            client.wait_ready(WAIT_S)

    def tick(self, step_s: int) -> None:
        """Let some seconds pass, at whose end there is a tick; a policy halves the latency."""
        self.second += step_s
        record = pb.TickRecord(
            sequence=self.second, time_s=self.second, mode=self.loop.status.mode
        )
        active = self.loop.status.mode == pb.MODE_ACTIVE
        record.sample.time_s = self.second
        record.sample.slots.add(
            name="hog", cpu_usage_us=500_000 * self.second, memory_usage_bytes=100 * MIB
        )
        record.sample.slot_states.add()
        record.sample.latency.completed = 5
        record.sample.latency.p95_ms = (20.0 if active else 40.0) + self.second % 7
        if self.loop.status.mode == pb.MODE_SHADOW:
            record.shadow.controller = "onnx"
            record.shadow.desired.slots.add(paused=self.second // 2 % 2 == 0)
        self.loop.connection.send(frame_tick(record.SerializeToString()))

    def tick_for_ever(self, step_s: int) -> None:
        """Tick in a thread until the end."""

        def work() -> None:
            with contextlib.suppress(OSError):  # the service has ended
                while not self._over.wait(0.001):
                    self.tick(step_s)

        self._ticking = threading.Thread(target=work, daemon=True)
        self._ticking.start()

    def end(self) -> None:
        self._over.set()
        if self._ticking is not None:
            self._ticking.join(WAIT_S)
        self.loop.end()


@pytest.fixture
def node(here: Path) -> Iterator[Node]:
    service = Service(here, experiments=here / "experiments")
    made = Node(service, service.socket)
    yield made
    made.end()
    service.close()


@pytest.fixture
def november(here: Path) -> None:
    """A policy that the loop of these tests finds by its name."""
    (here / "november").write_bytes(b"a policy")


def test_watch_and_plot(node: Node, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node.tick_for_ever(1)
    run_example("Watch a node and plot it", node.socket)
    assert re.match(r"\d+ ticks, \d+ lost", capsys.readouterr().out)
    assert (here / "node.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
@pytest.mark.usefixtures("november")
def test_shadow_for_an_hour(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    node.tick_for_ever(2)  # a policy that wants a pause at every other tick
    run_example("Shadow for an hour, then compare", node.socket)
    said = capsys.readouterr().out
    minutes, share = re.findall(r"In (\d+) minutes .* in (\d+)% of the time", said)[0]
    assert int(minutes) > 0
    assert 0 < int(share) < 100
    assert "paused 0% of the time, by the policy " in said
    with ActuatorClient(node.socket) as client:
        assert client.status().mode is Mode.OFF


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
@pytest.mark.usefixtures("november")
def test_an_experiment_and_its_verdict(
    node: Node, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    really_sleep: Callable[[float], None] = time.sleep
    main = threading.current_thread()
    with ActuatorClient(node.socket) as client:

        def sleep(wait_s: float) -> None:
            if threading.current_thread() is not main:
                really_sleep(wait_s)
                return
            for number in range(int(wait_s)):
                node.tick(1)
                if number % 5 == 0:  # well within the burn-in of a block
                    client.status()  # the service has taken the ticks, and asked for the next arm

        monkeypatch.setattr(time, "sleep", sleep)
        run_example("Run an experiment and read the verdict", node.socket)
    said = capsys.readouterr().out
    assert "complete after 40 blocks" in said
    assert re.search(r"p95 is 0\.5\d times the baseline's \(0\.5\d to 0\.5\d\)", said)
    assert said.endswith("Keep the policy.\n")
