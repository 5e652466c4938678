"""The lines of the systemd unit about the network: as wide as the configuration's addresses."""

from __future__ import annotations

import ipaddress
import urllib.parse
from typing import Final

from stallward.actuator.cli.unit.places import listening_addresses
from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.errors import ConfigError
from stallward.actuator.latency.config import PrometheusLatency, split_url
from stallward.actuator.runtime.addresses import is_loopback
from stallward.actuator.work.config import PrometheusWork

_LOCAL: Final = (
    "# Latencies and metrics come and go on this machine, by TCP or UDP, and by Unix sockets.",
    "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6",
    "# No packet comes from another machine or goes there, whatever the daemon would send.",
    "IPAddressDeny=any",
    "IPAddressAllow=localhost",
)
_UNIX_ONLY: Final = (
    "# Unix sockets alone: no address of this configuration needs a network.",
    "RestrictAddressFamilies=AF_UNIX",
    "# So it has no network at all,",
    "PrivateNetwork=yes",
    "# and no packet would pass if it had one.",
    "IPAddressDeny=any",
)
_REMOTE_KEY: Final = "remote.address"
_REMOTE: Final = (
    "# The configuration names or admits other machines ({why}).",
    "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6",
    "# Which ones it does not say by address: narrow it to yours by `systemctl edit stallward`.",
    "IPAddressAllow=any",
)
_SOME_REMOTE: Final = (
    "# Other machines are asked, or ask: {host}.",
    "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6",
    "# No packet comes from any but those and this one, and none goes elsewhere.",
    "IPAddressDeny=any",
    "IPAddressAllow=localhost {host}",
)


def network(config: DaemonConfig) -> tuple[str, ...]:
    """The narrowest network that the addresses of the configuration allow."""
    ports = {key: at for key, at in listening_addresses(config).items() if not at.path}
    open_keys = [key for key, address in ports.items() if not address.is_local]
    scraped = _scraped(config)
    elsewhere = {key: host for key, host in scraped.items() if not is_loopback(host)}
    clients = config.remote.networks if config.remote is not None else ()
    if clients:
        open_keys = [key for key in open_keys if key != _REMOTE_KEY]
    # A name: the servers that resolve it are other machines as well.
    unknown = open_keys or ([] if all(map(_is_ip, elsewhere.values())) else list(elsewhere))
    if unknown:
        return tuple(line.format(why=", ".join(unknown)) for line in _REMOTE)
    if elsewhere or clients:
        hosts = " ".join(dict.fromkeys((*elsewhere.values(), *clients)))
        return tuple(line.format(host=hosts) for line in _SOME_REMOTE)
    return _LOCAL if ports or scraped else _UNIX_ONLY


def _scraped(config: DaemonConfig) -> dict[str, str]:
    """The hosts that are scraped, by their keys in the configuration."""
    found = {}
    for place, latency in config.named_latencies:
        if isinstance(latency, PrometheusLatency):
            url, key = latency.url, "url" if latency.url else "port"
            # The network of pods is no address of this machine, and which it is is not known.
            found[f"{place}.{key}"] = split_url(url)[0] if url else "pods"
    for slot in config.background:
        if isinstance(slot.work, PrometheusWork):
            found[f"background.{slot.name}.work.url"] = split_url(slot.work.url)[0]
    if config.follows_pods and config.kubernetes.source != "file":
        found["kubernetes.server"] = _cluster_host(config)
    return found


def _cluster_host(config: DaemonConfig) -> str:
    server = config.kubernetes.server
    if server is None:
        raise ConfigError(
            "config.kubernetes.server is missing, and a systemd unit runs outside of the cluster.",
            next_step='Write server = "https://HOST:PORT" and node under [kubernetes].',
        )
    return urllib.parse.urlsplit(server).hostname or ""


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
