"""Reads a TOML file into a checked configuration, and writes one as TOML."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.tables import SlotConfig
from stallward.actuator.errors import ConfigError
from stallward.agent.errors import SchemaError
from stallward.agent.schema.file_kinds import next_step_of
from stallward.agent.schema.read import read
from stallward.agent.schema.text_file import read_text_file
from stallward.agent.schema.toml_file import read_toml
from stallward.agent.schema.write import to_toml


def parse_config(text: str, name: str = "config") -> DaemonConfig:
    """Parse a configuration.

    Args:
        text: The configuration as TOML.
        name: Its name in messages, e.g. the path of the file.

    Raises:
        ConfigError: If a key is unknown or missing, or a value has a wrong type or range.
    """
    try:
        table = read_toml(text)
    except ValueError as error:
        raise ConfigError(f"{name} is not TOML: {error}.") from error
    try:
        config = read(DaemonConfig, table, "config")
        return replace(config, background=_one_slot_each(config.background))
    except SchemaError as error:
        raise ConfigError(f"{name}: {error.cause}", next_step=error.next_step) from error


def _one_slot_each(slots: Iterable[SlotConfig]) -> tuple[SlotConfig, ...]:
    """Make single slots of the tables that stand for several."""
    made: list[SlotConfig] = []
    for slot in slots:
        if slot.pod is None or slot.pod.slots == 1:
            made.append(slot)
            continue
        one = replace(slot.pod, slots=1)
        made += [
            replace(slot, name=f"{slot.name}-{number}", pod=one)
            for number in range(1, slot.pod.slots + 1)
        ]
    return tuple(made)


def load_config(path: Path) -> DaemonConfig:
    """Read a configuration file.

    Raises:
        ConfigError: If it cannot be read or used.
    """
    try:
        text = read_text_file(path)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path} cannot be read: {error}.", next_step=next_step_of(error, "")
        ) from error
    return parse_config(text, str(path))


def config_toml(config: DaemonConfig) -> str:
    """The configuration as TOML; parsing it gives an equal configuration."""
    return to_toml(config)


def write_config(fd: int, config: DaemonConfig) -> None:
    """Write a configuration into a file in place of what is in it."""
    os.ftruncate(fd, 0)
    os.pwrite(fd, config_toml(config).encode(), 0)
