"""Real cgroups shaped like those of a kubelet, inside a group of the tests' own."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pods import uid_of, written

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
from stallward.actuator.kernel.cgroups import Cgroup
from stallward.actuator.kernel.hierarchies import detect
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.targets.config import KubernetesConfig, PodConfig
from stallward.actuator.targets.kubelet_groups import Driver, KubeletGroup, Level
from stallward.actuator.targets.qos import Qos

MIB = 1 << 20
ZONE_LIMIT_BYTES = 256 * MIB
HOLD = """
import sys, time
sys.stdin.read()  # what is held before it is in its group belongs to another
held = bytearray(int(sys.argv[1]))
for offset in range(0, len(held), 4096):
    held[offset] = 1
print("ready", flush=True)
time.sleep(3600)
"""


@dataclass
class PodSandbox:
    """A zone in which pods are made and removed, and the file that lists them."""

    zone: Cgroup
    driver: Driver
    folder: Path
    _listed: dict[int, dict[str, Any]] = field(default_factory=dict)
    _running: dict[int, tuple[Cgroup, subprocess.Popen[bytes]]] = field(default_factory=dict)

    def config(
        self, slots: int = 2, controller: str = "none", group_by: str = "pod"
    ) -> DaemonConfig:
        """A daemon's configuration, in which every target is a pod."""
        batch = PodConfig(selector="app=batch", group_by=group_by)
        return DaemonConfig(
            node=NodeConfig(zone=self.zone.name),
            protected=ProtectedConfig(pod=PodConfig(role="protected")),
            background=tuple(
                SlotConfig(name=f"batch-{i}", pod=batch, floor_bytes=4 * MIB)
                for i in range(1, slots + 1)
            ),
            service=ServiceConfig(socket=self.folder / "s.sock"),
            journal=JournalConfig(path=self.folder / "journal"),
            control=ControlConfig(controller=controller),
            restart=RestartConfig(delay_s=0.02, max_delay_s=0.05, max_per_minute=1000),
            kubernetes=KubernetesConfig(
                source="file", path=self.folder / "pods.json", cgroup_parent=self.zone.name
            ),
        )

    def group(self, number: int, qos: Qos = Qos.BEST_EFFORT) -> Cgroup:
        """The group of a pod."""
        name = KubeletGroup(
            level=Level.POD, driver=self.driver, parent=self.zone.name, qos=qos, uid=uid_of(number)
        ).name
        return self.zone.hierarchy.group(name)

    def start(self, number: int, app: str = "batch", **changes: Any) -> Cgroup:
        """Start a pod with a container that holds 24 MiB, and list it."""
        qos = changes.get("qos", Qos.BEST_EFFORT)
        group = self.group(number, qos)
        container = group.child(
            f"cri-containerd-{number:064x}.scope"
            if self.driver is Driver.SYSTEMD
            else f"{number:064x}"
        )
        container.create()
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(24 * MIB)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        container.add_pid(process.pid)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.stdout.readline()
        self._running[number] = (group, process)
        self.list(number, app, **changes)
        return group

    def list(self, number: int, app: str, **changes: Any) -> None:
        """List a pod, or list it otherwise."""
        self._listed[number] = written(app, number=number, **changes)
        self._write()

    def unlist(self, number: int) -> None:
        """List a pod no more that has only been listed."""
        del self._listed[number]
        self._write()

    def stop(self, number: int) -> None:
        """End a pod as the kubelet does: its processes, then its group, then its entry."""
        group, process = self._running.pop(number)
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
        group.remove()
        self._listed.pop(number, None)
        self._write()

    def _write(self) -> None:
        fresh = self.folder / "pods.new"
        fresh.write_text(json.dumps({"items": list(self._listed.values())}))
        fresh.replace(self.folder / "pods.json")

    def end(self) -> None:
        """Remove everything."""
        for number in tuple(self._running):
            self.stop(number)
        self.zone.remove()


def frozen(group: Cgroup) -> bool:
    """Whether the whole group is frozen."""
    assert group.unified_dir is not None
    return "frozen 1" in (group.unified_dir / "cgroup.events").read_text()


def limit_of(group: Cgroup) -> str:
    """The memory limit of a group."""
    assert group.memory_dir is not None
    v1 = group.memory_dir / "memory.limit_in_bytes"
    return (v1 if v1.exists() else group.memory_dir / "memory.high").read_text().strip()


UNLIMITED = {"max", str((1 << 63) - os.sysconf("SC_PAGE_SIZE"))}


@contextlib.contextmanager
def pod_sandbox(folder: Path, driver: Driver) -> Iterator[PodSandbox]:
    """Make a zone with a limit, and remove it with everything in it."""
    suffix = ".slice" if driver is Driver.SYSTEMD else ""
    zone = detect(Paths()).group(f"stallwardpods{os.getpid()}{suffix}")
    box = PodSandbox(zone=zone, driver=driver, folder=folder)
    try:
        zone.create()
        assert zone.memory_dir is not None
        v1 = zone.memory_dir / "memory.limit_in_bytes"
        limit = v1 if v1.exists() else zone.memory_dir / "memory.max"
        limit.write_text(str(ZONE_LIMIT_BYTES))
        yield box
    finally:
        box.end()
