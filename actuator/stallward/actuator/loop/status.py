"""The status that the loop sends to the service once a second."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.engine.engine import Engine
from stallward.actuator.engine.lease import Leases
from stallward.actuator.guard.hold_budget import allowed_s, is_bounded
from stallward.actuator.ipc.channels import GuardianLink, MessageSocket
from stallward.actuator.loop.commands import CommandHandler
from stallward.actuator.node.node import Node
from stallward.actuator.record import wire
from stallward.actuator.record.work_wire import work_source_to_wire
from stallward.actuator.runtime.stderr_line import say
from stallward.actuator.work.config import unit_of
from stallward.agent.sample import WorkSource
from stallward.proto.v1 import stallward_pb2 as pb

MISSING_S: Final = 5.0
"""How old the list of missing signals and levers may be: making it takes 0.4 ms."""
_LONGEST: Final = 200
"""At most so many characters of an error are said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusSources:
    """The sources of a status; see :class:`stallward.actuator.loop.tick.Ticker`."""

    config: DaemonConfig
    node: Node
    engine: Engine
    leases: Leases
    commands: CommandHandler
    link: GuardianLink
    senders: tuple[MessageSocket, ...]
    restarts: int
    daemon_start_s: float


class LoopStatus:
    """Makes the status of one loop.

    Args:
        sources: The sources of the status.
    """

    def __init__(self, sources: StatusSources) -> None:
        self._sources = sources
        self._slots = [slot.name for slot in sources.config.background]
        self._missing: tuple[str, ...] = ()
        self._missing_until_s = float("-inf")
        self._faults: tuple[str, ...] = ()
        self._untold = 0
        self._first_untold = ""
        self._blind = 0
        self._why_blind = ""

    def note_untold(self, error: Exception) -> None:
        """Count a record, an answer or a status that could not be made, because of ``error``."""
        self._untold += 1
        self._first_untold = self._first_untold or f"{type(error).__name__}: {error}"[:_LONGEST]

    def note_blind(self, error: Exception) -> None:
        """Count a tick at which no sample could be read, because of ``error``."""
        why = f"{type(error).__name__}: {error}"[:_LONGEST]
        if why != self._why_blind:
            say(f"no sample can be read ({why}), so nothing is held back", "loop")
        self._why_blind = why
        self._blind += 1

    def make(self, *, ticks: int, calm: bool) -> pb.StatusResponse:
        """Make the present status.

        Args:
            ticks: How many ticks there were.
            calm: Whether the node is calm.
        """
        sources = self._sources
        now_s = time.monotonic()
        lease = sources.leases.current(now_s)
        engine, counts = sources.engine, sources.engine.counts
        return pb.StatusResponse(
            node_kind=sources.node.hierarchy.kind,
            controller="remote" if lease else engine.in_force.name,
            mode=wire.mode_to_wire(engine.mode),
            policy=sources.commands.policy,
            slots=self._slots,
            lease_held=lease is not None,
            lease_remaining_s=sources.leases.remaining_s(now_s),
            ticks=ticks,
            records_dropped=sum(sender.dropped for sender in sources.senders),
            missing=self._missing_now(now_s),
            uptime_s=now_s - sources.daemon_start_s,
            loop_restarts=sources.restarts,
            calm=calm,
            fallbacks=counts.fallbacks,
            stepped_aside=counts.stepped_aside,
            hold_budget=self._hold_budget(),
            work_sources=self._work_sources(),
            slot_pods=[
                pb.SlotPods(pods=sources.node.places.pods(i)) for i in range(len(self._slots))
            ],
            latency_source=wire.latency_status(sources.config.latency, sources.node.latency),
        )

    def _work_sources(self) -> list[pb.WorkSourceStatus]:
        """Return where the work of each slot is counted."""
        sources = self._sources
        return [
            pb.WorkSourceStatus(
                source=work_source_to_wire(WorkSource(slot.work.source)),
                unit=unit_of(slot.work),
                fault=fault,
            )
            for slot, fault in zip(
                sources.config.background, sources.node.work.faults(), strict=True
            )
        ]

    def _hold_budget(self) -> pb.HoldBudgetStatus | None:
        """Return what holds without pressure have used up; ``None`` if they have no bound."""
        engine = self._sources.engine
        budgets, holds = engine.guard.budgets, engine.memory.holds
        if not is_bounded(budgets):
            return None
        return pb.HoldBudgetStatus(
            used_s=holds.used_s,
            allowed_s=allowed_s(budgets),
            refusing=holds.refusing,
            since_pressure_s=holds.since_sign_s,
        )

    def _missing_now(self, now_s: float) -> tuple[str, ...]:
        """Return what is missing, and why; a fault that comes or goes shows at once."""
        untold, blind = self._untold_text(), self._blind_text()
        faults = (self._sources.link.problem, untold, blind, *self._sources.node.passing_faults())
        if now_s >= self._missing_until_s or faults != self._faults:
            self._faults, self._missing_until_s = faults, now_s + MISSING_S
            problem = self._sources.link.problem
            text = f"journal: {problem} Nothing new is changed until it can be."
            own = (text if problem else "", untold, blind)
            self._missing = (*filter(None, own), *self._sources.node.missing())
        return self._missing

    def _untold_text(self) -> str:
        """Say how many records could not be made, and why the first could not."""
        if not self._untold:
            return ""
        return f"records: {self._untold} could not be made; the first: {self._first_untold}"

    def _blind_text(self) -> str:
        """Say at how many ticks no sample could be read, and why at the last of them."""
        if not self._blind:
            return ""
        return f"samples: {self._blind} could not be read; the last: {self._why_blind}"
