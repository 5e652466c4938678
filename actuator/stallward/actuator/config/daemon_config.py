"""The daemon's configuration: one TOML file, parsed once, refused whole if anything is off."""

from __future__ import annotations

from dataclasses import dataclass, field

from stallward.actuator.config.tables import (
    ControlConfig,
    JournalConfig,
    NodeConfig,
    PolicyConfig,
    ProtectedConfig,
    RecordConfig,
    RestartConfig,
    ServiceConfig,
    SlotConfig,
)
from stallward.actuator.config_checks import check_config
from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.latency.config import LatencyConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonConfig:
    """What the user asked of the daemon."""

    protected: ProtectedConfig
    background: tuple[SlotConfig, ...]
    service: ServiceConfig
    journal: JournalConfig
    node: NodeConfig = field(default_factory=NodeConfig)
    latency: LatencyConfig | None = None
    control: ControlConfig = field(default_factory=ControlConfig)
    guard: Budgets = field(default_factory=Budgets)
    record: RecordConfig | None = None
    policy: PolicyConfig | None = None
    restart: RestartConfig = field(default_factory=RestartConfig)

    def __post_init__(self) -> None:
        check_config(self)
