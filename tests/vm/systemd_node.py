"""A zone of systemd's in the emulated machine, and the daemon's unit on it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from pressed_zone import IDLE, MIB, wait_for
from systemd_manager import Manager

from stallward.actuator.cli.unit.text import UNIT_NAME, Installation, unit_text
from stallward.actuator.client import ActuatorClient
from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.load import config_toml
from stallward.actuator.config.tables import (
    ControlConfig,
    JournalConfig,
    NodeConfig,
    ProtectedConfig,
    RecordConfig,
    ServiceConfig,
    SlotConfig,
)
from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.kernel.process_table import start_time_ticks
from stallward.actuator.record.frames import FRAMES_NAME, read_frames
from stallward.actuator.record.lever_result import LeverResult
from stallward.actuator.record.wire import TICK_RECORD
from stallward.agent.desired import ProcessRef
from stallward.proto.v1 import stallward_pb2 as pb

PYTHON = f"{sys.executable} -S -E"
AS_NOBODY = (
    f"{shutil.which('setpriv')} --reuid 65534 --inh-caps +dac_read_search "
    f"--ambient-caps +dac_read_search {PYTHON}"
)
"""Python as another user, who may run it even where it lies in root's home."""
HOLDS = "held = b'x' * (32 << 20)\nimport time\nwhile True: held[::4096]; time.sleep(0.1)"
CONFIG = "/run/stallward.toml"
ADDRESS = "192.0.2.1"
"""An address that is no loopback one, given to the loopback interface (RFC 5737)."""
OUTPUT = "StandardOutput=append:/run/units.log\nStandardError=append:/run/units.log\n"
"""There is no journald."""
SLOW = (
    f"[Service]\nTimeoutStartSec=600\nTimeoutStopSec=300\nWatchdogSec=0\nRestartSec=0\n{OUTPUT}"
    "Environment=OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1\n"
)
"""Everything takes long in an emulated machine."""
UNTOUCHED = {
    "hog.service/memory.high": "max",
    "hog.service/memory.max": "max",
    "hog.service/cgroup.freeze": "0",
    "hog.service/cpu.weight": "100",
    "hog.service/cpu.max": "max 100000",
    "hog.service/io.max": "",
    "scan.scope/memory.high": "max",
    "scan.scope/memory.swap.max": "max",
    "app.service/memory.low": "0",
}


def config_of(*, page_cache: str = "off", metrics: str | None = None) -> DaemonConfig:
    """The configuration of a daemon in the zone ``edge.slice``."""
    return DaemonConfig(
        node=NodeConfig(zone="edge.slice", page_cache=page_cache),
        protected=ProtectedConfig(group="edge.slice/app.service"),
        background=tuple(
            SlotConfig(name=name, group=f"edge.slice/{unit}", floor_bytes=4 * MIB)
            for name, unit in (("hog", "hog.service"), ("scan", "scan.scope"))
        ),
        service=ServiceConfig(socket=Path("/run/stallward/actuator.sock"), metrics=metrics),
        journal=JournalConfig(path=Path("/run/stallward/journal")),
        record=RecordConfig(dir=Path("/var/lib/stallward/recording")),
        control=ControlConfig(
            controller="none",
            default_controller="none",
            read_processes=True,
            tick_period_s=1.0,
            calm_tick_period_s=1.0,
            foreign_wait_s=8.0,
        ),
        guard=Budgets(lift_budgets=True),
    )


class Node:
    """A zone of systemd's, with an application, a service and a scope of another user."""

    def __init__(self, manager: Manager) -> None:
        self.manager = manager
        self._scope: subprocess.Popen[bytes] | None = None

    def start_work(self) -> None:
        """Start the application and the background."""
        folder = self.manager.path("/run/units")
        (folder / "holds.py").write_text(HOLDS)
        (folder / "idle.py").write_text(IDLE)
        self.manager.write_unit("edge.slice", "[Slice]\nMemoryMax=192M\nIOAccounting=yes\n")
        for name, program in (("app", "idle"), ("hog", "holds"), ("other", "idle")):
            self.manager.write_unit(
                f"{name}.service",
                f"[Service]\nExecStart={AS_NOBODY} /run/units/{program}.py\n"
                f"Slice=edge.slice\nCPUWeight=100\nIOAccounting=yes\n{OUTPUT}",
            )
        for name in ("app", "hog"):
            self.manager.start(f"{name}.service")
        scope = ["systemd-run", "--scope", "--quiet", "--unit=scan", "--slice=edge.slice"]
        words = [*scope, *AS_NOBODY.split(), "/run/units/holds.py"]
        self._scope = subprocess.Popen(self.manager.command(*words))
        assert wait_for(lambda: self.manager.is_active("scan.scope")), self.manager.log()
        assert self.manager.is_active("app.service"), self.manager.log()
        assert self.manager.is_active("hog.service"), self.manager.log()

    def stop_work(self) -> None:
        """End the scope's command, which is no child of systemd."""
        if self._scope is not None:
            self._scope.kill()
            self._scope.wait()

    def install(self, config: DaemonConfig) -> None:
        """Write a daemon's configuration, and the unit that is made for it."""
        self.manager.path(CONFIG).write_text(config_toml(config))
        self.manager.write_unit(UNIT_NAME, unit_of(config), slow=SLOW)

    def client(self) -> ActuatorClient:
        """A client of the daemon."""
        return ActuatorClient(self.manager.path("/run/stallward/actuator.sock"))

    def read(self, name: str) -> str:
        """A setting of the zone."""
        return (self.manager.group("edge.slice") / name).read_text().strip()

    def settings(self) -> dict[str, str]:
        """All settings that the tests move."""
        found = {name: self.read(name) for name in UNTOUCHED}
        (app,), (hog,) = (self.manager.pids(f"edge.slice/{n}.service") for n in ("app", "hog"))
        found["app"] = Path(f"/proc/{app}/oom_score_adj").read_text().strip()
        found["hog"] = f"{os.getpriority(os.PRIO_PROCESS, hog)} {os.sched_getaffinity(hog)}"
        found["swappiness"] = Path("/proc/sys/vm/swappiness").read_text().strip()
        found["dirty_ratio"] = Path("/proc/sys/vm/dirty_bytes").read_text().strip()
        return found

    def inside(self, group: str) -> ProcessRef:
        """The first process of a group, as it is called inside."""
        status = Path(f"/proc/{self.manager.pids(group)[0]}/status").read_text()
        pid = int(next(x for x in status.splitlines() if x.startswith("NSpid:")).split()[-1])
        ticks = start_time_ticks(self.manager.path("/proc"), pid)
        assert ticks is not None
        return ProcessRef(pid=pid, start_time_ticks=ticks)

    def results(self) -> list[LeverResult]:
        """All that the daemon's levers have done so far."""
        path = self.manager.path(f"/var/lib/stallward/recording/{FRAMES_NAME}")
        records = (TICK_RECORD.from_wire(pb.TickRecord.FromString(f)) for f in read_frames(path))
        return [result for record in records for result in record.applied]


def unit_of(config: DaemonConfig) -> str:
    """The text of the unit."""
    program = Path(sys.executable).parent / "stallward"
    read = (Path(sys.prefix), Path(sys.base_prefix), *map(Path, sys.path))
    return unit_text(Installation(program=program, config=Path(CONFIG), read=read), config)
