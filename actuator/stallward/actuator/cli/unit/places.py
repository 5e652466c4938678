"""The lines of the systemd unit about files: where the daemon writes, and what it does not see."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.errors import ConfigError
from stallward.actuator.latency.config import LinesLatency, StatsdLatency
from stallward.actuator.runtime.addresses import Address
from stallward.actuator.targets.config import KubernetesConfig
from stallward.actuator.work.config import CommandWork, FileWork

_SAFE: Final = re.compile(r"/[A-Za-z0-9_./+@:,-]*")
"""Paths that need no quoting in a unit; % would be a specifier."""
_OWN: Final = (Path("/run/stallward"), Path("/var/lib/stallward"))
"""The folders that the unit makes, and that the daemon may write to."""
_PRIVATE: Final = (Path("/tmp"), Path("/var/tmp"))  # noqa: S108 - nothing is made there
"""Folders of which the unit gives the daemon its own (PrivateTmp)."""
_SHARED: Final = frozenset(
    Path(name)
    for name in (
        *("/", "/boot", "/dev", "/etc", "/home", "/opt", "/proc", "/root", "/run", "/srv", "/sys"),
        *("/usr", "/usr/local", "/var", "/var/lib", "/var/log", "/var/run", "/var/spool"),
    )
)
"""Folders with files of other programs: none of them is made writable for one file."""
_HOMES: Final = (Path("/home"), Path("/root"), Path("/run/user"))
_HOMES_READ: Final = (
    "# Something that it reads lies in a home; nothing there is written.",
    "ProtectHome=read-only",
)
_HOMES_HIDDEN: Final = (
    "# Nothing that it reads lies in a home.",
    "ProtectHome=yes",
)


def check_name(path: Path) -> None:
    """Refuse a path that a unit would misread.

    Raises:
        ConfigError: If it is relative, or has a character that must be quoted.
    """
    if not _SAFE.fullmatch(str(path)):
        raise ConfigError(
            f"{str(path)!r} cannot be named in a systemd unit.",
            next_step="Use a whole path of letters, digits and _ . / + @ : , -",
        )


def listening_addresses(config: DaemonConfig) -> dict[str, Address]:
    """The addresses that the daemon listens at, by their keys in the configuration."""
    found = {}
    if config.service.metrics_address is not None:
        found["service.metrics"] = config.service.metrics_address
    for place, latency in config.named_latencies:
        if isinstance(latency, StatsdLatency):
            found[f"{place}.listen"] = latency.address
    if config.remote is not None:
        found["remote.address"] = config.remote.listening
    return found


def _read_of_applications(config: DaemonConfig) -> dict[str, Path]:
    """The files of the protected applications, by their keys in the configuration."""
    found = {
        f"{place}.profile": one.profile
        for place, one in config.named_applications
        if one.profile is not None
    }
    return found | {
        f"{place}.path": latency.path
        for place, latency in config.named_latencies
        if isinstance(latency, LinesLatency)
    }


def _read_by_name(config: DaemonConfig) -> dict[str, Path]:
    """The files and folders that the daemon reads, by their keys in the configuration."""
    found = _read_of_applications(config)
    targets = {place: one.processes for place, one in config.named_applications}
    targets |= {f"background.{slot.name}": slot.processes for slot in config.background}
    for key, processes in targets.items():
        if processes is not None and processes.pidfile is not None:
            found[f"{key}.processes.pidfile"] = processes.pidfile
    for slot in config.background:
        if slot.profile is not None:
            found[f"background.{slot.name}.profile"] = slot.profile
        if isinstance(slot.work, FileWork):
            found[f"background.{slot.name}.work.path"] = slot.work.path
        if isinstance(slot.work, CommandWork):
            found[f"background.{slot.name}.work.command[0]"] = Path(slot.work.command[0])
    if config.follows_pods:
        found |= _read_about_pods(config.kubernetes)
    if config.policy.dir is not None:
        found["policy.dir"] = config.policy.dir
    for key in ("controller", "default_controller"):
        options = re.findall(r"([a-z_]+)=(/[^,]*)", getattr(config.control, key))
        found |= {f"control.{key}.{option}": Path(path) for option, path in options}
    if config.notify.command:
        found["notify.command[0]"] = Path(config.notify.command[0])
    if config.remote is not None:
        found["remote.certificate"] = config.remote.certificate
        found["remote.key"] = config.remote.key
        found["remote.client_ca"] = config.remote.client_ca
    return found


def _read_about_pods(kubernetes: KubernetesConfig) -> dict[str, Path]:
    if kubernetes.path is not None:
        return {"kubernetes.path": kubernetes.path}
    return {"kubernetes.token": kubernetes.token, "kubernetes.ca": kubernetes.ca}


def _written(config: DaemonConfig) -> dict[str, Path]:
    """The folders that the daemon writes to, by their keys in the configuration."""
    files = {"service.socket": config.service.socket, "journal.path": config.journal.path}
    files |= _open_to_others(config)
    folders = {key: file.parent for key, file in files.items()}
    if config.record is not None:
        folders["record.dir"] = config.record.dir
    if config.policy.store is not None:
        folders["policy.store"] = config.policy.store
    if config.experiments.dir is not None:
        folders["experiments.dir"] = config.experiments.dir
    return folders


def check_visible(installed: Mapping[str, Path], config: DaemonConfig) -> None:
    """Refuse files in the folders of which the daemon has its own, empty ones.

    Args:
        installed: Files beside those of the configuration, by what names them.
        config: The configuration.

    Raises:
        ConfigError: If there is one.
    """
    named = {**_written(config), **_read_by_name(config)}
    files = {f"config.{key}": path for key, path in named.items()}
    for what, path in {**installed, **files}.items():
        if any(path.is_relative_to(folder) for folder in _PRIVATE):
            raise ConfigError(
                f"{what} is in {path.parent}: under systemd the daemon has temporary folders of "
                "its own, and would not find it.",
                next_step="Put it elsewhere, e.g. below /run.",
            )


def writable_folders(config: DaemonConfig) -> tuple[str, ...]:
    """The folders that the daemon writes to, besides its own.

    Raises:
        ConfigError: If other programs use one, too, or its name would have to be quoted.
    """
    found: dict[Path, None] = {}
    for key, folder in _written(config).items():
        if any(folder.is_relative_to(own) for own in _OWN):
            continue
        if folder in _SHARED:
            raise ConfigError(
                f"config.{key} is in {folder}, which other programs use, too: the unit would have "
                "to let the daemon write to all of it.",
                next_step="Name a place below /run/stallward, for recordings below "
                "/var/lib/stallward.",
            )
        check_name(folder)
        found[folder] = None
    if not found:
        return ()
    return (
        "# What the configuration puts elsewhere. The folders must be there before the daemon.",
        f"ReadWritePaths={' '.join(map(str, found))}",
    )


def homes(read: Iterable[Path], config: DaemonConfig) -> tuple[str, ...]:
    """Homes are hidden, unless something that is read lies in one.

    Args:
        read: What is read beside what the configuration names.
        config: The configuration.
    """
    named = (*_read_by_name(config).values(), *_written(config).values())
    if any(path.is_relative_to(home) for path in (*read, *named) for home in _HOMES):
        return _HOMES_READ
    return _HOMES_HIDDEN


def _open_to_others(config: DaemonConfig) -> dict[str, Path]:
    """The sockets that are not for root alone, by their keys in the configuration."""
    found = {key: Path(at.path) for key, at in listening_addresses(config).items() if at.path}
    if config.service.report_socket is not None:
        found["service.report_socket"] = config.service.report_socket
    if config.service.socket_group is not None:
        found["service.socket"] = config.service.socket
    return found


def runtime_mode(config: DaemonConfig) -> tuple[str, ...]:
    """The mode of /run/stallward: others must pass to a socket that is for them."""
    if any(path.is_relative_to(_OWN[0]) for path in _open_to_others(config).values()):
        return (
            "# Other users pass through it to the socket that is for them; they cannot list it.",
            "RuntimeDirectoryMode=0711",
        )
    return ("RuntimeDirectoryMode=0700",)
