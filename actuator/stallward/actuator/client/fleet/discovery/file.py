"""The file that says where the nodes of a fleet are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from stallward.actuator.client.fleet.discovery.dns import DnsConfig
from stallward.actuator.client.fleet.discovery.endpoints import ServiceConfig
from stallward.actuator.errors import ConfigError
from stallward.agent.errors import SchemaError
from stallward.agent.schema.file_kinds import next_step_of
from stallward.agent.schema.read import read
from stallward.agent.schema.toml_file import read_toml_file


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetFile:
    """The content of the file."""

    nodes: Mapping[str, str] = field(default_factory=dict)
    """Name of a node -> the address of its daemon."""
    dns: DnsConfig | None = None
    """Where further nodes are found in the DNS."""
    kubernetes: ServiceConfig | None = None
    """The Service of whose endpoints each is a further node."""
    tls: Path | None = None
    """The folder of the client's certificates; ``None`` for that which the environment names."""


def read_fleet_file(path: Path) -> FleetFile:
    """Read the file.

    Raises:
        ConfigError: If it cannot be read, names no nodes, or names one twice.
    """
    try:
        file = read(FleetFile, read_toml_file(path))
    except SchemaError as error:
        raise ConfigError(f"{path}: {error.cause}", next_step=error.next_step) from error
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path} cannot be read: {error}.", next_step=next_step_of(error, "")
        ) from error
    if not file.nodes and file.dns is None and file.kubernetes is None:
        raise ConfigError(
            f"{path} names no node.",
            next_step='Write lines such as web-1 = "web-1:7443" under [nodes], or [dns] or '
            "[kubernetes].",
        )
    first: dict[str, str] = {}
    for name, address in file.nodes.items():
        if first.setdefault(address, name) != name:
            raise ConfigError(f"{path}: {first[address]} and {name} are both {address}.")
    return file
