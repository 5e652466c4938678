"""The systemd unit that ships with the project, filled in for one installation.

Most of it is the same everywhere. What only some configurations need is added for those alone:
eBPF, the network, and places outside of the daemon's two folders.
"""

from __future__ import annotations

import ipaddress
import re
import urllib.parse
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Final

from stallward.actuator.cli.unit.places import (
    check_name,
    check_visible,
    homes,
    listening_addresses,
    runtime_mode,
    writable_folders,
)
from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.errors import ConfigError
from stallward.actuator.kernel.cgroups import Kind, parse_name
from stallward.actuator.latency.config import PrometheusLatency, split_url
from stallward.actuator.levers.cgroup.vm_settings import WRITTEN_FILES
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


UNIT_NAME: Final = "stallward.service"

_ZONE: Final = (
    "# The zone must be there before the daemon may write to it, and for as long as it does; the",
    "# [Install] section below brings both back together.",
    "Requires={zone}",
    "After={zone}",
)
_APPLICATIONS: Final = (
    "# Without the group of an application the daemon does not start, so it waits for this one.",
    "After={unit}",
)
_SERVICE: Final = re.compile(r"[A-Za-z0-9:_.\\@-]+\.service")

_ZONE_ONLY: Final = (
    "# Pausing and limiting is writing to the zone's groups; all other groups are read-only.",
    "ProtectControlGroups=yes",
    "ReadWritePaths={path}",
)
_ALL_GROUPS: Final = (
    "# Pausing and limiting is writing to groups, here to any: `yes` would make them read-only.",
    "# Where the zone is a slice and the node has cgroup v2, only the zone is writable.",
    "ProtectControlGroups=no",
)

_PAGE_CACHE_CAPABILITIES: Final = (
    "# BPF, PERFMON: page-cache hits by eBPF. DAC_READ_SEARCH: a cgroup is found by its number.",
    "CapabilityBoundingSet=CAP_BPF CAP_PERFMON CAP_DAC_READ_SEARCH",
)
_GIVING_CALLS: Final = (
    "# Giving sockets to their groups.",
    "SystemCallFilter=chown fchownat",
)
_PAGE_CACHE_CALLS: Final = (
    "# Page-cache hits by eBPF, as the configuration asks; the second finds a cgroup.",
    "SystemCallFilter=bpf open_by_handle_at",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """What the unit has to know beside the configuration."""

    program: Path
    """The installed ``stallward`` command."""
    config: Path
    """The daemon's TOML file."""
    read: tuple[Path, ...] = ()
    """Further folders that the program needs, such as those of Python's modules."""
    kind: Kind = "v2"
    """The kind of the node."""


def unit_text(installation: Installation, config: DaemonConfig) -> str:
    """Return the text of the unit.

    Raises:
        ConfigError: If a path is relative, or has a character that a unit needs quoted; if the
            daemon would have to write to a folder that other programs use, too, or to read one
            that the unit hides.
    """
    installed = {"--program": installation.program, "--config": installation.config}
    for name in installed.values():
        check_name(name)
    check_visible(installed, config)
    page_cache = config.node.page_cache != "off"
    socket_groups = _socket_groups(config)
    zone = _zone_slice(installation, config)
    blocks = {
        "ZONE": tuple(line.format(zone=zone) for line in _ZONE if zone),
        "APPLICATIONS": tuple(
            line.format(unit=unit) for unit in _services(config) for line in _APPLICATIONS
        ),
        "RUNTIME_MODE": runtime_mode(config),
        "PAGE_CACHE_CAPABILITIES": _PAGE_CACHE_CAPABILITIES if page_cache else (),
        "WRITABLE": writable_folders(config),
        "CONTROL_GROUPS": tuple(
            line.format(path=f"{config.node.cgroup}/{parse_name(config.node.zone)}")
            for line in (_ZONE_ONLY if zone else _ALL_GROUPS)
        ),
        "HOMES": homes((*installed.values(), *installation.read), config),
        "NETWORK": network(config),
        "PAGE_CACHE_CALLS": _PAGE_CACHE_CALLS if page_cache else (),
        "SOCKET_GROUPS": socket_groups,
        "GIVING_CALLS": _GIVING_CALLS if socket_groups else (),
        "WANTED_BY": (f"WantedBy=multi-user.target {zone}".rstrip(),),
    }
    words = {
        "STALLWARD": str(installation.program),
        "CONFIG": str(installation.config),
        "VM_FILES": " ".join(f"-{config.node.proc}/sys/vm/{name}" for name in WRITTEN_FILES),
    }
    folder = resources.files("stallward.actuator.cli.unit")
    text = (folder / UNIT_NAME).read_text(encoding="utf-8")
    for mark, lines in blocks.items():
        text = text.replace(f"@{mark}@\n", "".join(f"{line}\n" for line in lines))
    for mark, word in words.items():
        text = text.replace(f"@{mark}@", word)
    return text


def _zone_slice(installation: Installation, config: DaemonConfig) -> str:
    """The zone's unit, if it is a slice that holds all groups that are written to; else empty.

    Only a slice that the daemon requires stays for as long as the daemon runs. Another group may
    be removed and made anew, and what was made writable would be the old one.
    """
    zone = parse_name(config.node.zone)
    unit = zone.rpartition("/")[2]
    named = [one.group for one in config.applications] + [one.group for one in config.background]
    groups = [group or zone for group in named]
    inside = all(parse_name(group).startswith(zone) for group in groups)
    parts = unit.removesuffix(".slice").split("-")
    path = "/".join(f"{'-'.join(parts[: i + 1])}.slice" for i in range(len(parts)))
    is_slice = path == zone and bool(re.fullmatch(r"[A-Za-z0-9_.:-]+\.slice", unit))
    return unit if installation.kind == "v2" and is_slice and inside else ""


def _services(config: DaemonConfig) -> tuple[str, ...]:
    """The services in whose groups the applications are."""
    parts = [part for one in config.applications for part in (one.group or "").split("/")]
    return tuple(dict.fromkeys(filter(_SERVICE.fullmatch, parts)))


def _socket_groups(config: DaemonConfig) -> tuple[str, ...]:
    keys = {
        "socket_group": config.service.socket_group,
        "report_group": config.service.report_group,
    }
    groups = {key: group for key, group in keys.items() if group is not None}
    for key, group in groups.items():
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", group):
            raise ConfigError(
                f"config.service.{key} is {group!r}, which a systemd unit does not take.",
                next_step="Write its number.",
            )
    if not groups:
        return ()
    return (
        "# Sockets are given to these groups, which a member of them may do without CAP_CHOWN.",
        f"SupplementaryGroups={' '.join(dict.fromkeys(groups.values()))}",
    )
