"""Nodes by their records in the DNS: A and AAAA, or SRV, which have the ports as well."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stallward.actuator.errors import ConfigError
from stallward.fleet.errors import DiscoveryError

if TYPE_CHECKING:
    from dns.resolver import Resolver

_ANSWER_S: Final = 5.0
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
    """``HOST:PORT`` of the server that is asked for SRV records; by default the system's."""
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
        if self.resolver and not self.resolver.rpartition(":")[2].isdigit():
            raise ConfigError(
                f"[dns] has the resolver {self.resolver!r}.", next_step="Write HOST:PORT."
            )


def find_in_dns(config: DnsConfig) -> dict[str, str]:
    """The addresses of the nodes, by their names.

    Raises:
        DiscoveryError: If they cannot be looked up.
    """
    return _addresses(config.host, config.port) if config.host else _services(config)


def _addresses(host: str, port: int) -> dict[str, str]:
    """By the system's resolver, so that /etc/hosts and the like count as well."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise DiscoveryError(
            f"The addresses of {host} cannot be looked up: {error.strerror or error}.",
            next_step="Look whether the name and the resolver are right.",
        ) from error
    names = sorted({str(address[0]) for *_, address in found})
    return {name: f"[{name}]:{port}" if ":" in name else f"{name}:{port}" for name in names}


def _services(config: DnsConfig) -> dict[str, str]:
    import dns.exception  # noqa: PLC0415 - only for those that have such records

    try:
        answer = _resolver(config.resolver).resolve(config.service, "SRV", lifetime=_ANSWER_S)
    except (dns.exception.DNSException, OSError) as error:
        raise DiscoveryError(
            f"The SRV records of {config.service} cannot be looked up: {error}",
            next_step="Look whether the name and the resolver are right.",
        ) from error
    hosts = [(str(one.target).rstrip("."), int(one.port)) for one in answer]
    several = {host for host, _ in hosts if sum(host == other for other, _ in hosts) > 1}
    return {
        f"{host}:{port}" if host in several else host: f"{host}:{port}"
        for host, port in sorted(hosts)
        if host  # the root is the record for "no such service here"
    }


def _resolver(address: str) -> Resolver:
    import dns.resolver  # noqa: PLC0415

    made = dns.resolver.Resolver(configure=not address)
    if address:
        host, _, port = address.rpartition(":")
        made.nameservers, made.port = [host.strip("[]")], int(port)
    return made
