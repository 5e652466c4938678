"""Connecting to running daemons."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from stallward.actuator.kernel.paths import SOCKET
from stallward.agent.errors import UsageError

if TYPE_CHECKING:
    from stallward.actuator.client import ActuatorClient, Fleet

DEFAULT_SOCKET: Final = SOCKET
Socket = Annotated[
    Path,
    typer.Option(
        help="The daemon's Unix socket, or HOST:PORT of another machine's daemon.",
        envvar="STALLWARD_SOCKET",
    ),
]
Nodes = Annotated[
    Path | None,
    typer.Option(help="A file that names many nodes, in place of --socket."),
]


def connect(socket: Path) -> ActuatorClient:
    """A client of a daemon.

    Args:
        socket: A Unix socket; or ``HOST:PORT`` of a daemon on another machine, for which the
            environment variable ``STALLWARD_TLS`` names the folder of the certificates.

    Raises:
        UsageError: If no daemon listens at the socket.
        ConfigError: If no certificates are named, or one cannot be read.
    """
    from stallward.actuator.client import ActuatorClient, daemon_at  # noqa: PLC0415

    daemon = daemon_at(str(socket))
    if isinstance(daemon, Path) and not daemon.is_socket():
        raise UsageError(
            f"No daemon listens at {socket}.",
            next_step="Start one with `stallward serve`, or name its socket with --socket.",
        )
    return ActuatorClient(daemon)


def connect_fleet(file: Path) -> Fleet:
    """Clients of all daemons that a file names.

    Raises:
        ConfigError: If the file cannot be used, or a certificate cannot be read.
    """
    from stallward.actuator.client import Fleet, load_fleet  # noqa: PLC0415

    return Fleet(load_fleet(file))
