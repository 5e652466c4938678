"""The file that names the nodes of a fleet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stallward.actuator.client.remote_daemon import RemoteDaemon, daemon_at
from stallward.actuator.errors import ConfigError
from stallward.agent.errors import SchemaError
from stallward.agent.schema.file_kinds import next_step_of
from stallward.agent.schema.read import read
from stallward.agent.schema.toml_file import read_toml_file


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetFile:
    """The content of the file."""

    nodes: Mapping[str, str]
    """Name of a node -> the address of its daemon."""
    tls: Path | None = None
    """The folder of the client's certificates; ``None`` for that which the environment names."""


def load_fleet(path: Path) -> dict[str, Path | RemoteDaemon]:
    """The daemons that a file names, by the names of their nodes.

    Raises:
        ConfigError: If the file cannot be read, names no node, or names one twice.
    """
    try:
        file = read(FleetFile, read_toml_file(path))
    except SchemaError as error:
        raise ConfigError(f"{path}: {error.cause}", next_step=error.next_step) from error
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path} cannot be read: {error}.", next_step=next_step_of(error, "")
        ) from error
    if not file.nodes:
        raise ConfigError(
            f"{path} names no node.", next_step='Write lines such as web-1 = "web-1:7443".'
        )
    first: dict[str, str] = {}
    for name, address in file.nodes.items():
        if first.setdefault(address, name) != name:
            raise ConfigError(f"{path}: {first[address]} and {name} are both {address}.")
    tls = None if file.tls is None else path.parent / file.tls
    return {name: daemon_at(address, tls) for name, address in file.nodes.items()}
