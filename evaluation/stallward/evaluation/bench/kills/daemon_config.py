"""The configuration of a daemon that is killed."""

from __future__ import annotations

from typing import Final

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
from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.latency.config import LinesLatency
from stallward.env.sandbox.sandbox import Sandbox
from stallward.evaluation.bench.kills.arms import STORM, KilledArm
from stallward.evaluation.bench.kills.programs import latency_log
from stallward.evaluation.bench.kills.tally import CHECK_S

TARGET_MS: Final = 20.0
"""The latency target. The application misses it under pressure, so that those who act on it do."""
_FLOOR_BYTES: Final = 4 << 20


def campaign_config(sandbox: Sandbox, arm: KilledArm, *, faults_s: float = 0.0) -> DaemonConfig:
    """The daemon that is killed; a restarted loop acts only after the checks of a kill.

    A controller of the application's threads has the consent that it needs.

    Args:
        sandbox: The sandbox that it controls.
        arm: Its controller.
        faults_s: How long system calls fail after a kill at most.
    """
    folder = sandbox.folder
    # Starting takes as long again, and then STORM waits; another controller acts at once.
    delay_s = CHECK_S / 4 if arm.controller.startswith(STORM) else 1.25 * CHECK_S
    delay_s += faults_s
    return DaemonConfig(
        node=NodeConfig.at(sandbox.paths, zone=sandbox.zone.name),
        protected=ProtectedConfig(group=sandbox.protected.name, groups=(sandbox.load.name,)),
        background=tuple(
            SlotConfig(name=f"slot{index}", group=group.name, floor_bytes=_FLOOR_BYTES)
            for index, group in enumerate(sandbox.slots)
        ),
        service=ServiceConfig(socket=folder / "kills.sock"),
        journal=JournalConfig(path=folder / "kills.journal"),
        latency=LinesLatency(path=latency_log(sandbox), latency="0"),
        control=ControlConfig(controller=arm.controller, slo_ms=TARGET_MS, seed=1),
        guard=Budgets(
            lift_budgets=True,
            allow_terminate=arm.may_end,
            allow_protected_threads=arm.schedules_threads,
        ),
        record=RecordConfig(dir=folder / "kills"),
        restart=RestartConfig(delay_s=delay_s, max_delay_s=delay_s, max_per_minute=10_000),
    )
