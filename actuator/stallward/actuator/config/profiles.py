"""Takes numbers of a configuration from profiles of applications.

Only who starts or changes a daemon does so; undoing what one did must not need these files.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.tables import ProtectedConfig, SlotConfig
from stallward.actuator.errors import ConfigError
from stallward.agent.desired import DEFAULT_FLOOR_BYTES
from stallward.agent.errors import ProfileError
from stallward.agent.profile import ApplicationProfile, read_profile


def with_profiles(config: DaemonConfig) -> DaemonConfig:
    """The configuration with the numbers of the profiles that it names, and without their paths.

    Raises:
        ConfigError: If a profile cannot be used, or a number is given, too.
    """
    return replace(
        config,
        protected=_all_protected(config),
        background=slots_with_profiles(config.background),
    )


def slots_with_profiles(slots: Iterable[SlotConfig]) -> tuple[SlotConfig, ...]:
    """The same for the background alone; see :func:`with_profiles`."""
    return tuple(_slot(i, slot) for i, slot in enumerate(slots))


def _all_protected(config: DaemonConfig) -> ProtectedConfig | tuple[ProtectedConfig, ...]:
    found = tuple(_protected(place, table) for place, table in config.named_applications)
    return found if isinstance(config.protected, tuple) else found[0]


def _protected(place: str, table: ProtectedConfig) -> ProtectedConfig:
    if table.profile is None:
        return table
    if table.demand_bytes:
        raise ConfigError(
            f"config.{place} has both demand_bytes and profile.", next_step="Give one of the two."
        )
    profile = _read(f"{place}.profile", table.profile)
    return replace(table, demand_bytes=profile.working_set_bytes, profile=None)


def _slot(index: int, table: SlotConfig) -> SlotConfig:
    if table.profile is None:
        return table
    place = f"background[{index}]"
    if table.floor_bytes != DEFAULT_FLOOR_BYTES:
        raise ConfigError(
            f"config.{place} has both floor_bytes and profile.", next_step="Give one of the two."
        )
    profile = _read(f"{place}.profile", table.profile)
    return replace(table, floor_bytes=profile.least_bytes, profile=None)


def _read(name: str, path: Path) -> ApplicationProfile:
    try:
        return read_profile(path)
    except ProfileError as error:
        raise ConfigError(f"config.{name}: {error.cause}", next_step=error.next_step) from error
