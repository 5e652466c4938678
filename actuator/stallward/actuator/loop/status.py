"""What the service is told once a second of what only the loop knows."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.engine.engine import Engine
from stallward.actuator.engine.lease import Leases
from stallward.actuator.ipc.channels import GuardianLink, MessageSocket
from stallward.actuator.loop.commands import CommandDesk
from stallward.actuator.node.node import Node
from stallward.actuator.record import wire
from stallward.proto.v1 import stallward_pb2 as pb

MISSING_S: Final = 5.0
"""How old the list of what is missing may be: going through every signal takes 0.4 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusSources:
    """What a status is made of; see :class:`stallward.actuator.loop.tick.Ticker`."""

    config: DaemonConfig
    node: Node
    engine: Engine
    leases: Leases
    desk: CommandDesk
    link: GuardianLink
    outlets: tuple[MessageSocket, ...]
    restarts: int
    daemon_start_s: float


class LoopStatus:
    """Makes the status of one loop.

    Args:
        sources: Where it is found.
    """

    def __init__(self, sources: StatusSources) -> None:
        self._sources = sources
        self._slots = [slot.name for slot in sources.config.background]
        self._missing: tuple[str, ...] = ()
        self._missing_until_s = float("-inf")
        self._troubles: tuple[str, ...] = ()

    def make(self, *, ticks: int, calm: bool) -> pb.StatusResponse:
        """The status now.

        Args:
            ticks: How many there were.
            calm: Whether the node is.
        """
        found = self._sources
        now_s = time.monotonic()
        lease = found.leases.current(now_s)
        engine, counts = found.engine, found.engine.counts
        return pb.StatusResponse(
            node_kind=found.node.hierarchy.kind,
            controller="remote" if lease else engine.in_force.name,
            mode=wire.mode_to_wire(engine.mode),
            policy=found.desk.policy,
            slots=self._slots,
            lease_held=lease is not None,
            lease_remaining_s=found.leases.remaining_s(now_s),
            ticks=ticks,
            records_dropped=sum(outlet.dropped for outlet in found.outlets),
            missing=self._missing_now(now_s),
            uptime_s=now_s - found.daemon_start_s,
            loop_restarts=found.restarts,
            calm=calm,
            fallbacks=counts.fallbacks,
            stepped_aside=counts.stepped_aside,
            latency_source=wire.latency_status(found.config.latency, found.node.latency),
        )

    def _missing_now(self, now_s: float) -> tuple[str, ...]:
        """What is missing and why; what comes and goes with the journal and latency, at once."""
        troubles = (self._sources.link.problem, *self._sources.node.passing_faults())
        if now_s >= self._missing_until_s or troubles != self._troubles:
            self._troubles, self._missing_until_s = troubles, now_s + MISSING_S
            problem = self._sources.link.problem
            said = f"journal: {problem} Nothing new is changed until it can be."
            self._missing = (*([said] if problem else ()), *self._sources.node.missing())
        return self._missing
