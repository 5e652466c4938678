"""Where the nodes of a fleet are looked up, as the file of a fleet says it."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stallward.actuator.errors import ConfigError

_MOST_PORT: Final = 65_535
_ONE_OF_THEM: Final = (
    'Write service = "_stallward._tcp.example.org" for SRV records, or host and port.'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DnsConfig:
    """Where nodes are found in the DNS.

    Raises:
        ConfigError: If it is neither SRV records nor a host with a port.
    """

    service: str = ""
    """The name of SRV records; each is a node, named by its host."""
    host: str = ""
    """A name with an A or AAAA record for each node; they are named by their addresses."""
    port: int = 0
    """The port of the daemons at ``host``."""
    resolver: str = ""
    """``ADDRESS:PORT`` of the server that is asked for SRV records; by default the system's."""
    server_name: str = ""
    """The name in the nodes' certificates, where it is not the host by which they are found."""

    def __post_init__(self) -> None:
        if bool(self.service) == bool(self.host):
            raise ConfigError("[dns] names either service or host.", next_step=_ONE_OF_THEM)
        if bool(self.host) != bool(self.port) or not 0 <= self.port <= _MOST_PORT:
            raise ConfigError(
                f"[dns] has the port {self.port}.",
                next_step="Write the port of the daemons beside host; SRV records have it.",
            )
        if self.resolver and not _is_address(self.resolver):
            raise ConfigError(
                f"[dns] has the resolver {self.resolver!r}.",
                next_step="Write ADDRESS:PORT with the IP address of a server, e.g. 10.0.0.10:53 "
                "or [::1]:53.",
            )


def _is_address(text: str) -> bool:
    """Whether a text is an IP address and a port."""
    host, _, port = text.rpartition(":")
    try:
        ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return port.isdecimal() and port.isascii() and 0 < int(port) <= _MOST_PORT


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceConfig:
    """The Service of whose endpoints each is a node.

    Raises:
        ConfigError: If it says in two ways how the cluster is reached.
    """

    service: str
    """Its name."""
    namespace: str = ""
    """Its namespace; by default that of the context, or of the pod in which this runs."""
    port: str = ""
    """The name or number of its port; needed if it has several."""
    kubeconfig: Path | None = None
    """The file that says how the cluster is reached. By default, outside of a cluster, that which
    the environment variable ``KUBECONFIG`` names, or ``~/.kube/config``."""
    context: str = ""
    """The context of that file; by default its current one."""
    server: str = ""
    """``https://HOST:PORT`` of the API, in place of a kubeconfig; with only a token or an authority
    that of the cluster in which this runs."""
    token: Path | None = None
    """The token that goes with it; by default that of the pod's service account."""
    authority: Path | None = None
    """The authority whose certificate the API must show, as PEM; by default that of the pod's
    service account."""
    server_name: str = ""
    """The name in the nodes' certificates, where they are not for the addresses."""

    def __post_init__(self) -> None:
        if self.by_kubeconfig and self.by_hand:
            raise ConfigError(
                "[kubernetes] names both a kubeconfig and how the cluster is reached without one.",
                next_step="Write either kubeconfig and context, or server, token and authority.",
            )

    @property
    def by_kubeconfig(self) -> bool:
        """Whether a kubeconfig, or a context of one, is named."""
        return self.kubeconfig is not None or bool(self.context)

    @property
    def by_hand(self) -> bool:
        """Whether it is written down how the cluster is reached."""
        return bool(self.server) or self.token is not None or self.authority is not None
