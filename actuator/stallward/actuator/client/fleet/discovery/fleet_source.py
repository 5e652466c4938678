"""Looks up where the nodes of a fleet are, again and again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from stallward.actuator.client.fleet.discovery.dns import find_in_dns
from stallward.actuator.client.fleet.discovery.endpoints import find_endpoints
from stallward.actuator.client.fleet.discovery.file import read_fleet_file
from stallward.actuator.client.fleet.discovery.known_nodes import (
    Daemons,
    KnownNodes,
    NodeChanges,
)
from stallward.actuator.client.remote_daemon import RemoteDaemon, daemon_at
from stallward.agent.errors import StallwardError


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
            self._add(dns.service or dns.host, lambda: find_in_dns(dns), dns.server_name)
        if (service := file.kubernetes) is not None:
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
