"""The daemon on the node of a real cluster, with the rights that the chart gives, and its pods."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import programs
import psutil
from control_plane import SERVER, ControlPlane
from kubelet import BUSYBOX_IMAGE
from node_space import NAME, wait_for

from stallward.actuator.client import ActuatorClient
from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.load import config_toml
from stallward.actuator.config.tables import (
    ControlConfig,
    JournalConfig,
    ProtectedConfig,
    RestartConfig,
    ServiceConfig,
    SlotConfig,
)
from stallward.actuator.errors import DaemonUnavailableError
from stallward.actuator.targets.config import KubernetesConfig, PodConfig
from stallward.agent.desired import DesiredState, SlotDesire

MIB: Final = 1 << 20
LIMIT_BYTES: Final = 64 * MIB
FOREIGN_WAIT_S: Final = 4.0
"""How long the daemon leaves alone what the kubelet has changed."""
HELD: Final = DesiredState(slots=(SlotDesire(paused=True, limit_bytes=LIMIT_BYTES),))
CHART: Final = Path(__file__).parents[3] / "deploy/chart"
_HOLD: Final = "dd if=/dev/zero of=/dev/shm/held bs=1M count=24 && exec sleep infinity"


def deployment(name: str, role: str = "", limit_mib: int = 0) -> dict[str, Any]:
    """A deployment of one pod that holds 24 MiB, with or without a limit."""
    container: dict[str, Any] = {"name": "main", "image": BUSYBOX_IMAGE, "args": ["-c", _HOLD]}
    if limit_mib:
        container["resources"] = {"limits": {"memory": f"{limit_mib}Mi"}}
    annotations = {"stallward.io/role": role} if role else {}
    metadata = {"labels": {"app": name}, "annotations": annotations}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 1}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": metadata, "spec": spec},
        },
    }


class RunningPod:
    """A pod as the kubelet runs it, by its group."""

    def __init__(self, plane: ControlPlane, described: dict[str, Any]) -> None:
        qos = {"BestEffort": "besteffort/", "Burstable": "burstable/"}
        self.name: str = described["metadata"]["name"]
        self._plane = plane
        self.group: str = (
            f"kubepods/{qos.get(described['status']['qosClass'], '')}"
            f"pod{described['metadata']['uid']}"
        )

    @property
    def frozen(self) -> bool:
        """Whether all of the pod is paused."""
        events = self._plane.space.group("unified", self.group) / "cgroup.events"
        return events.exists() and "frozen 1" in events.read_text()

    @property
    def limit_bytes(self) -> int:
        """The limit of the pod's memory."""
        return int((self._memory / "memory.limit_in_bytes").read_text())

    @property
    def _memory(self) -> Path:
        return self._plane.space.group("memory", self.group)

    @property
    def there(self) -> bool:
        """Whether the kubelet still has the pod's group."""
        return self._memory.exists()

    @property
    def held(self) -> bool:
        """Whether the daemon pauses and limits it."""
        return self.there and self.frozen and self.limit_bytes == LIMIT_BYTES


def pods_of(plane: ControlPlane, app: str) -> list[RunningPod]:
    """The pods of an application that run and are not ending."""
    items = plane.get("pods", "-l", f"app={app}")["items"]
    return [
        RunningPod(plane, item)
        for item in items
        if item["status"]["phase"] == "Running" and "deletionTimestamp" not in item["metadata"]
    ]


def pod_of(plane: ControlPlane, app: str) -> RunningPod:
    """The pod of an application, once it runs."""
    found: list[RunningPod] = []

    def look() -> bool:
        found[:] = pods_of(plane, app)
        return bool(found)

    assert wait_for(look), plane.kubectl("describe", "pods") + plane.space.log("kubelet")
    return found[0]


class NodeDaemon:
    """A daemon on the node, that follows its pods with the rights of the chart's account."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self._plane = plane
        self._folder = folder
        chart = (
            "template",
            "stallward",
            CHART,
            "--show-only=templates/rbac.yaml",
            "--kube-version=1.33",
        )
        rights = subprocess.run((programs.HELM, *chart), check=True, capture_output=True).stdout
        (folder / "rights.yaml").write_bytes(rights)
        plane.kubectl("apply", "-f", str(folder / "rights.yaml"))
        (folder / "token").write_text(plane.kubectl("create", "token", "stallward"))
        config = DaemonConfig(
            protected=ProtectedConfig(pod=PodConfig(role="protected")),
            background=(
                SlotConfig(
                    name="batch", pod=PodConfig(selector="app=batch", namespace="default"),
                    floor_bytes=4 * MIB,
                ),
            ),
            control=ControlConfig(foreign_wait_s=FOREIGN_WAIT_S),
            service=ServiceConfig(socket=folder / "s.sock"),
            journal=JournalConfig(path=self.journal),
            restart=RestartConfig(delay_s=0.02, max_delay_s=0.05, max_per_minute=1000),
            kubernetes=KubernetesConfig(
                server=SERVER, token=folder / "token", ca=plane.ca, node=NAME
            ),
        )  # fmt: skip
        (folder / "daemon.toml").write_text(config_toml(config))

    @property
    def journal(self) -> Path:
        """What it has to undo."""
        return self._folder / "journal"

    def start(self) -> None:
        """Start it, and wait until it serves."""
        program = Path(sys.prefix) / "bin/stallward"
        words = ("serve", "--config", self._folder / "daemon.toml")
        self._plane.space.start("daemon", program, *words)

        def serves() -> bool:
            with self.client() as client, contextlib.suppress(DaemonUnavailableError):
                return client.wait_ready(1.0).ticks > 0
            return False

        assert wait_for(serves), self.log()

    def client(self) -> ActuatorClient:
        """A client of it."""
        return ActuatorClient(self._folder / "s.sock")

    def hold(self) -> None:
        """Have the pod of its slot paused and limited for a minute."""
        with self.client() as client:
            client.apply(HELD, lease_s=60.0, holder="test")

    def holds(self, pod: RunningPod) -> bool:
        """Whether it holds a pod, now that it is told to again."""
        with contextlib.suppress(DaemonUnavailableError):  # while its loop starts
            self.hold()
        return wait_for(lambda: pod.held, 1.0)

    def missing(self) -> str:
        """What it says that it lacks."""
        with self.client() as client:
            return "\n".join(client.status().missing)

    def loop(self) -> int:
        """The pid of its loop; 0 where there is none."""
        for child in psutil.Process(self._plane.space.program("daemon")).children():
            with contextlib.suppress(psutil.NoSuchProcess):
                if "stallward.actuator.loop" in child.cmdline():
                    return child.pid
        return 0

    def kill(self) -> None:
        """Kill guardian and loop at once: nobody is left that restores."""
        os.kill(self.loop(), signal.SIGKILL)
        self._plane.space.end("daemon", signal.SIGKILL)

    def stop(self) -> None:
        """Stop it, as an administrator does."""
        self._plane.space.end("daemon")

    def log(self) -> str:
        """What it has written."""
        return self._plane.space.log("daemon")


@contextlib.contextmanager
def node_daemon(plane: ControlPlane, folder: Path) -> Iterator[NodeDaemon]:
    """A daemon that runs, and is stopped at the end."""
    daemon = NodeDaemon(plane, folder)
    daemon.start()
    try:
        yield daemon
    finally:
        if plane.space.runs("daemon"):
            daemon.stop()
