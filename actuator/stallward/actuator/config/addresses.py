"""Checks of the addresses under which a daemon can be asked."""

from __future__ import annotations

import ipaddress

from stallward.actuator.config.tables import RemoteConfig, ServiceConfig
from stallward.actuator.errors import ConfigError
from stallward.actuator.runtime.addresses import grpc_target


def check_report_socket(service: ServiceConfig) -> None:
    """Check the socket for those who only look on.

    Raises:
        ConfigError: If it is no socket of its own, or lets others write more than it may.
    """
    path, mode = service.report_socket, service.report_mode
    if path is None:
        if service.report_group is not None:
            raise ConfigError(
                "config.service.report_group goes with report_socket only.",
                next_step="Give report_socket, or remove it.",
            )
        return
    grpc_target(path, "config.service.report_socket")
    if str(path) in {str(service.socket), service.metrics}:
        raise ConfigError(
            f"config.service.report_socket is {str(path)!r}, like another socket.",
            next_step="Give it a path of its own.",
        )
    if mode & ~0o666 or mode & 0o600 != 0o600:
        raise ConfigError(
            f"config.service.report_mode is {mode:#o}, not a mode of a socket.",
            next_step="Write 0o660 for a group, 0o600 for this user alone, or 0o666.",
        )


def check_remote(remote: RemoteConfig) -> None:
    """Check the address for other machines, and who may change something from there.

    Raises:
        ConfigError: If it is a path, an operator has no name, or a network is none.
    """
    if remote.listening.path:
        raise ConfigError(
            f"config.remote.address is {remote.address!r}, a path.",
            next_step="Write HOST:PORT; a Unix socket is the socket under [service].",
        )
    for i, name in enumerate(remote.operators):
        if not name.strip():
            raise ConfigError(f"config.remote.operators[{i}] is empty: no certificate is meant.")
    for i, network in enumerate(remote.networks):
        try:
            ipaddress.ip_network(network)
        except ValueError as error:
            raise ConfigError(
                f"config.remote.networks[{i}] is {network!r:.80}, no network ({error}).",
                next_step="Write an IP address, or a network such as 10.0.0.0/8.",
            ) from error
