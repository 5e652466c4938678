"""What of the configuration may change while the daemon runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.reload import check_reload
from stallward.actuator.config.tables import (
    JournalConfig,
    ProtectedConfig,
    ServiceConfig,
    SlotConfig,
)
from stallward.actuator.errors import ConfigError
from stallward.actuator.guard.budgets import Budgets

CONFIG = DaemonConfig(
    protected=ProtectedConfig(group="edge/app"),
    background=(SlotConfig(name="build", group="edge/build"),),
    service=ServiceConfig(socket=Path("/run/s.sock")),
    journal=JournalConfig(path=Path("/run/journal")),
)


def test_target_and_budgets_may_change() -> None:
    control = replace(CONFIG.control, slo_ms=5.0)
    check_reload(CONFIG, replace(CONFIG, control=control, guard=Budgets(max_pause_s=2.0)))
    check_reload(CONFIG, CONFIG)


def test_the_targets_of_several_applications_may_change() -> None:
    several = tuple(
        ProtectedConfig(name=name, group=f"edge/{name}", slo_ms=5.0) for name in ("db", "web")
    )
    config = replace(CONFIG, protected=several)
    faster = (replace(several[0], slo_ms=2.0), several[1])
    check_reload(config, replace(config, protected=faster))
    moved = (replace(several[0], group="edge/elsewhere"), several[1])
    with pytest.raises(ConfigError, match=r"config\.protected has changed"):
        check_reload(config, replace(config, protected=moved))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"service": ServiceConfig(socket=Path("/run/other.sock"))}, "service"),
        ({"background": ()}, "background"),
        ({"control": replace(CONFIG.control, dry_run=True)}, "control"),
        ({"control": replace(CONFIG.control, controller="rule")}, "control"),
        ({"control": replace(CONFIG.control, tick_period_s=0.2)}, "control"),
        ({"journal": JournalConfig(path=Path("/run/other"))}, "journal"),
    ],
)
def test_everything_else_takes_a_restart_and_is_named(
    change: dict[str, object], named: str
) -> None:
    with pytest.raises(ConfigError, match=rf"config\.{named} has changed, which takes a restart"):
        check_reload(CONFIG, replace(CONFIG, **change))  # type: ignore[arg-type]
