"""Configurations to make systemd units for, and what a unit then says."""

from __future__ import annotations

from pathlib import Path

from stallward.actuator.cli.unit.text import Installation, unit_text
from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.load import parse_config

PROGRAM, CONFIG = Path("/usr/bin/env"), Path("/etc/stallward/stallward.toml")
HERE = Installation(program=PROGRAM, config=CONFIG, read=(Path("/usr"),))


_TLS = (
    'certificate = "/etc/stallward/node.pem"\nkey = "/etc/stallward/node.key"\n'
    'client_ca = "/etc/stallward/clients.pem"\n'
)


def config_of(
    *,
    zone: str = "edge.slice",
    node: str = "",
    service: str = "",
    latency: str = "",
    record: str = "",
    policy: str = "",
    control: str = "",
    work: str = "",
    kubernetes: str = "",
    remote: str = "",
) -> DaemonConfig:
    """A configuration with its files where the unit expects them, and with further lines."""
    tables = {
        "latency": latency,
        "record": record,
        "policy": policy,
        "control": control,
        "kubernetes": kubernetes,
        "remote": remote and f"{_TLS}{remote}",
    }
    below = f"{zone.strip('/')}/".lstrip("/")
    return parse_config(
        f'[node]\nzone = "{zone}"\n{node}\n'
        f'[protected]\ngroup = "{below}app.service"\n'
        f'[[background]]\nname = "hog"\ngroup = "{below}hog.service"\n'
        + (f"work = {{{work}}}\n" if work else "")
        + ('[[background]]\nname = "pods"\npod = { role = "b" }\n' if kubernetes else "")
        + f'[service]\nsocket = "/run/stallward/actuator.sock"\n{service}\n'
        '[journal]\npath = "/run/stallward/journal"\n'
        + "".join(f"[{name}]\n{lines}\n" for name, lines in tables.items() if lines)
    )


CONFIGS = {
    "sockets": config_of(),
    "remote": config_of(remote='address = "0.0.0.0:7443"\nnetworks = ["10.0.0.0/8"]'),
    "loopback": config_of(service='metrics = "127.0.0.1:9180"'),
    "everything": config_of(
        node='page_cache = "auto"',
        service='metrics = "127.0.0.1:9180"\nreport_socket = "/run/stallward/report.sock"\n'
        'report_group = "detector"',
        latency='source = "statsd"\nlisten = "/run/stallward/statsd.sock"\nmetric = "m"',
        record='dir = "/srv/recordings/edge"',
    ),
}


def settings(config: DaemonConfig) -> dict[str, list[str]]:
    """The values of each setting of the unit, in their order."""
    found: dict[str, list[str]] = {}
    for line in unit_text(HERE, config).splitlines():
        if line and line[0] not in "#[":
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


PROMETHEUS = 'source = "prometheus"\nmetric = "m"\nallow_remote = true\nurl = "http://{}/metrics"'
STATSD = 'source = "statsd"\nmetric = "m"\nallow_remote = true\nlisten = "{}"'
