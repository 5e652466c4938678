"""Looks up where the nodes of a fleet are, again and again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from stallward.actuator.client.remote_daemon import RemoteDaemon, daemon_at
from stallward.actuator.errors import ConfigError
from stallward.agent.errors import SchemaError, StallwardError
from stallward.agent.schema.file_kinds import next_step_of
from stallward.agent.schema.read import read
from stallward.agent.schema.toml_file import read_toml_file
from stallward.fleet.discovery.config import DnsConfig, ServiceConfig
from stallward.fleet.errors import DiscoveryError

# ---------- The file that says where the nodes of a fleet are


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


# ---------- The nodes that are known, while lookups find others or fail.

Daemons = Mapping[str, Path | RemoteDaemon]
"""Name of a node -> its daemon's Unix socket, or where another machine's daemon is reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeChanges:
    """What a lookup changed. A node at another address has left and joined."""

    joined: dict[str, Path | RemoteDaemon]
    left: tuple[str, ...]
    problems: dict[str, StallwardError]
    """Why a source could not be looked up now; its nodes stay known."""


class KnownNodes:
    """The nodes of several sources."""

    def __init__(self) -> None:
        self._found: dict[str, Daemons] = {}
        self.nodes: dict[str, Path | RemoteDaemon] = {}
        """All nodes that are known."""

    def take(self, answers: Mapping[str, Daemons | StallwardError]) -> NodeChanges:
        """Take what each source found, or why it could not be looked up.

        A source that finds no node at all has failed: a fleet does not vanish at once, and a
        lookup does.

        Raises:
            DiscoveryError: If two sources name different daemons alike.
        """
        problems: dict[str, StallwardError] = {}
        found = dict(self._found)
        for source, answer in answers.items():
            if isinstance(answer, StallwardError):
                problems[source] = answer
            elif not answer:
                problems[source] = DiscoveryError(f"{source} finds no node.")
            else:
                found[source] = answer
        nodes = _merged(found)
        gone = [name for name, daemon in self.nodes.items() if nodes.get(name) != daemon]
        joined = {name: daemon for name, daemon in nodes.items() if self.nodes.get(name) != daemon}
        self._found, self.nodes = found, nodes
        return NodeChanges(joined=joined, left=tuple(gone), problems=problems)


def _merged(found: Mapping[str, Daemons]) -> dict[str, Path | RemoteDaemon]:
    nodes: dict[str, Path | RemoteDaemon] = {}
    sources: dict[str, str] = {}
    for source, daemons in found.items():
        for name, daemon in daemons.items():
            if nodes.setdefault(name, daemon) != daemon:
                raise DiscoveryError(
                    f"{sources[name]} says that {name} is {nodes[name]}, and {source} that it is "
                    f"{daemon}.",
                    next_step="Name each node in one place only.",
                )
            sources.setdefault(name, source)
    return nodes


class FleetSource:
    """Where the nodes of a fleet are, as its file says.

    Args:
        path: The file. It is read once; the DNS and the cluster are asked at each lookup.

    Raises:
        ConfigError: If the file cannot be used.
    """

    def __init__(self, path: Path) -> None:
        file = read_fleet_file(path)
        self._tls = None if file.tls is None else path.parent / file.tls
        self._sources: dict[str, Callable[[], Daemons]] = {}
        if file.nodes:
            self._add(str(path), lambda: file.nodes)
        if (dns := file.dns) is not None:
            from stallward.fleet.discovery.dns import find_in_dns  # noqa: PLC0415 - takes 0.3 s

            self._add(dns.service or dns.host, lambda: find_in_dns(dns), dns.server_name)
        if (service := file.kubernetes) is not None:
            if service.kubeconfig is not None:
                kubeconfig = path.parent / service.kubeconfig.expanduser()
                service = replace(service, kubeconfig=kubeconfig)
            from stallward.fleet.discovery.endpoints import find_endpoints  # noqa: PLC0415 - 0.2 s

            name = f"the service {service.service}"
            self._add(name, lambda: find_endpoints(service), service.server_name)
        self.may_change: Final = file.dns is not None or file.kubernetes is not None
        """Whether a later lookup may find other nodes."""
        self._known: Final = KnownNodes()

    @property
    def nodes(self) -> dict[str, Path | RemoteDaemon]:
        """The nodes that are known."""
        return dict(self._known.nodes)

    def look(self) -> NodeChanges:
        """Look up all nodes. Where that fails, those known so far stay known.

        Raises:
            DiscoveryError: If two sources name different daemons alike.
        """
        answers: dict[str, Daemons | StallwardError] = {}
        for source, find in self._sources.items():
            try:
                answers[source] = find()
            except StallwardError as error:
                answers[source] = error
        return self._known.take(answers)

    def _add(
        self, name: str, find: Callable[[], Mapping[str, str]], server_name: str = ""
    ) -> None:
        """Add a source whose addresses become daemons."""
        self._sources[name] = lambda: {
            node: daemon_at(address, self._tls, server_name) for node, address in find().items()
        }


def load_fleet(path: Path) -> dict[str, Path | RemoteDaemon]:
    """The daemons of a fleet now, by the names of their nodes.

    Args:
        path: The file that says where they are.

    Raises:
        ConfigError: If the file cannot be used.
        DiscoveryError: If nodes cannot be looked up.
    """
    source = FleetSource(path)
    for problem in source.look().problems.values():
        raise problem
    return source.nodes
