"""The doors of the service, and how much each may hold, so that none uses up another's room.

All of them are served by one process: who comes by one may fill that one, and neither the
descriptors of the process nor the places of another. A connection on which nobody speaks gRPC, or
nobody shows a certificate, is closed in time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from stallward.actuator.runtime.process_setup import allow_open_files

FIRST_WORDS_S: Final = 5.0
"""How long a client may take until it has shown its certificate and speaks gRPC."""
_IDLE_S: Final = 300.0
"""How long a connection without a call stays open where others than root connect."""
_LEAST: Final = 8
"""The connections that a door admits where the hard limit of open files leaves room for few."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """How much clients may hold at one listening socket."""

    connections: int
    """The most connections at once; further ones are closed."""
    calls: int
    """The most calls at once on one connection; further ones wait in the client."""
    idle_s: float | None = _IDLE_S
    """How long a connection without a call stays open; ``None`` for ever."""

    def options(self) -> tuple[tuple[str, int], ...]:
        """The options of a gRPC server (``grpc/impl/channel_arg_names.h``)."""
        always = (
            ("grpc.max_allowed_incoming_connections", self.connections),
            ("grpc.server_handshake_timeout_ms", round(FIRST_WORDS_S * 1000)),
            ("grpc.max_concurrent_streams", self.calls),
        )
        if self.idle_s is None:
            return always
        return (*always, ("grpc.max_connection_idle_ms", round(self.idle_s * 1000)))


LOCAL: Final = Door(connections=512, calls=512, idle_s=None)
"""The control socket, which only root and its group can open."""
REPORTS: Final = Door(connections=64, calls=16)
"""The socket for reports, which the application can open."""
REMOTE: Final = Door(connections=256, calls=64)
"""The port for other machines, which whoever reaches the machine can connect to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doors:
    """The doors of one service."""

    local: Door = LOCAL
    reports: Door = REPORTS
    remote: Door = REMOTE

    @property
    def connections(self) -> int:
        """The most connections at all doors together."""
        return self.local.connections + self.reports.connections + self.remote.connections

    def within(self, files: int) -> Doors:
        """The same doors, made smaller if there is not room for so many open files."""
        if files >= self.connections:
            return self
        share = files / self.connections
        small = (
            replace(door, connections=max(int(door.connections * share), _LEAST))
            for door in (self.local, self.reports, self.remote)
        )
        local, reports, remote = small
        return Doors(local=local, reports=reports, remote=remote)


def open_doors() -> Doors:
    """The doors for which this process has room, after raising its limit of open files."""
    doors = Doors()
    return doors.within(allow_open_files(doors.connections))
