"""Connecting to a running daemon."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from stallward.actuator.kernel.paths import RUN
from stallward.agent.errors import UsageError

if TYPE_CHECKING:
    from stallward.actuator.client import ActuatorClient

DEFAULT_SOCKET: Final = RUN / "stallward/actuator.sock"
TLS_VARIABLE: Final = "STALLWARD_TLS"
Socket = Annotated[
    Path,
    typer.Option(
        help="The daemon's Unix socket, or HOST:PORT of another machine's daemon.",
        envvar="STALLWARD_SOCKET",
    ),
]
_REMOTE: Final = re.compile(r"[^/]+:\d{1,5}")


def is_remote(socket: Path) -> bool:
    """Whether a socket is ``HOST:PORT``: a daemon on another machine."""
    return _REMOTE.fullmatch(str(socket)) is not None


def connect(socket: Path) -> ActuatorClient:
    """A client of a daemon.

    Args:
        socket: A Unix socket; or ``HOST:PORT`` of a daemon on another machine, for which the
            environment variable ``STALLWARD_TLS`` names the folder of the certificates.

    Raises:
        UsageError: If no daemon listens at the socket, or no certificates are named.
    """
    from stallward.actuator.client import ActuatorClient, RemoteDaemon  # noqa: PLC0415

    if is_remote(socket):
        folder = os.environ.get(TLS_VARIABLE)
        if not folder:
            raise UsageError(
                f"{socket} is on another machine, which asks for a certificate.",
                next_step=f"Name the folder with ca.pem, client.pem and client.key in "
                f"{TLS_VARIABLE}.",
            )
        return ActuatorClient(RemoteDaemon.with_folder(str(socket), Path(folder)))
    if not socket.is_socket():
        raise UsageError(
            f"No daemon listens at {socket}.",
            next_step="Start one with `stallward serve`, or name its socket with --socket.",
        )
    return ActuatorClient(socket)
