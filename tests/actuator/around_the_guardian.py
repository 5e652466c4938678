"""A daemon's configuration for tests of its guardian."""

from __future__ import annotations

from pathlib import Path

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.tables import (
    ControlConfig,
    JournalConfig,
    NodeConfig,
    ProtectedConfig,
    ServiceConfig,
    SlotConfig,
)


def config_in(folder: Path, period_s: float) -> DaemonConfig:
    return DaemonConfig(
        node=NodeConfig(zone="z", proc=folder / "proc", cgroup=folder / "cgroup"),
        protected=ProtectedConfig(group="z/app"),
        background=(SlotConfig(name="bg", group="z/bg"),),
        service=ServiceConfig(socket=folder / "s.sock"),
        journal=JournalConfig(path=folder / "journal"),
        control=ControlConfig(tick_period_s=period_s),
    )
