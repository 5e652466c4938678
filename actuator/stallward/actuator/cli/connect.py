"""Connecting to a running daemon."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from stallward.actuator.kernel.paths import RUN
from stallward.agent.errors import UsageError

if TYPE_CHECKING:
    from stallward.actuator.client import ActuatorClient

DEFAULT_SOCKET: Final = RUN / "stallward/actuator.sock"
Socket = Annotated[Path, typer.Option(help="The daemon's Unix socket.", envvar="STALLWARD_SOCKET")]


def connect(socket: Path) -> ActuatorClient:
    """A client of the daemon at a socket.

    Raises:
        UsageError: If no daemon listens there.
    """
    if not socket.is_socket():
        raise UsageError(
            f"No daemon listens at {socket}.",
            next_step="Start one with `stallward serve`, or name its socket with --socket.",
        )
    from stallward.actuator.client import ActuatorClient  # noqa: PLC0415

    return ActuatorClient(socket)
