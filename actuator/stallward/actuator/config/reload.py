"""What of the configuration may change while the daemon runs. Pure."""

from __future__ import annotations

from dataclasses import fields, replace

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.errors import ConfigError


def check_reload(running: DaemonConfig, wanted: DaemonConfig) -> None:
    """Refuse a configuration that differs in more than the targets and the budgets.

    Args:
        running: The configuration that is in force.
        wanted: The one that is to take its place.

    Raises:
        ConfigError: If something else differs; it names it.
    """
    control = replace(wanted.control, slo_ms=running.control.slo_ms)
    rest = replace(wanted, control=control, guard=running.guard)
    running, rest = _without_targets(running), _without_targets(rest)
    for field in fields(DaemonConfig):
        before, after = getattr(running, field.name), getattr(rest, field.name)
        if before != after:
            raise ConfigError(
                f"config.{field.name} has changed, which takes a restart.",
                next_step="Restart the daemon. While it runs it takes another control.slo_ms and "
                "[guard]; `stallward ctl load` and `ctl mode` change what decides.",
            )


def _without_targets(config: DaemonConfig) -> DaemonConfig:
    """The configuration without the targets of several applications."""
    if not isinstance(config.protected, tuple):
        return config
    return replace(config, protected=tuple(replace(one, slo_ms=None) for one in config.protected))
