"""Nodes by their records in the DNS: A and AAAA, or SRV, which have the ports as well."""

from __future__ import annotations

import socket
from typing import Final

import dns.exception
import dns.resolver
from dns.resolver import Resolver

from stallward.fleet.discovery.config import DnsConfig
from stallward.fleet.errors import DiscoveryError

_ANSWER_S: Final = 5.0


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
    except (OSError, UnicodeError) as error:
        raise DiscoveryError(
            f"The addresses of {host} cannot be looked up: "
            f"{getattr(error, 'strerror', None) or error}.",
            next_step="Look whether the name and the resolver are right.",
        ) from error
    names = sorted({str(address[0]) for *_, address in found})
    return {name: f"[{name}]:{port}" if ":" in name else f"{name}:{port}" for name in names}


def _services(config: DnsConfig) -> dict[str, str]:
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
    made = dns.resolver.Resolver(configure=not address)
    if address:
        host, _, port = address.rpartition(":")
        made.nameservers, made.port = [host.strip("[]")], int(port)
    return made
