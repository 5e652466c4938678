"""Connecting to running daemons."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from stallward.actuator.kernel.paths import SOCKET
from stallward.agent.errors import UsageError

if TYPE_CHECKING:
    from stallward.actuator.client import ActuatorClient

DEFAULT_SOCKET: Final = SOCKET
NODES_GROUP: Final = "stallward.nodes"
"""The entry points that say what a command does with ``--nodes``, by its path: ``ctl.watch``."""
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
    from stallward.actuator.client import ActuatorClient, daemon_at  # noqa: PLC0415 - gRPC

    daemon = daemon_at(str(socket))
    if isinstance(daemon, Path) and not daemon.is_socket():
        raise UsageError(
            f"No daemon listens at {socket}.",
            next_step="Start one with `stallward serve`, or name its socket with --socket.",
        )
    return ActuatorClient(daemon)


def on_many_nodes(command: str) -> Callable[..., None]:
    """What a command does with ``--nodes FILE``, which is in a package beside the core.

    Args:
        command: The command, such as ``ab.start``.

    Returns:
        The function; it takes the file, and what the command was told by its other options.

    Raises:
        UsageError: If that package is not installed.
    """
    for point in entry_points(group=NODES_GROUP, name=command):
        function: Callable[..., None] = point.load()
        return function
    raise UsageError(
        f"`stallward {command.replace('.', ' ')} --nodes` is not installed.",
        next_step="Run `pip install 'stallward[fleet]'`.",
    )
