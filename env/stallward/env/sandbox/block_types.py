"""The input and the result of one live block."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stallward.env.recording.recording import Requests, Units
from stallward.env.recording.run_info import Condition
from stallward.env.sandbox.sandbox import Sandbox
from stallward.env.scenario.scenario import LatencyLines, Scenario, UnitLines


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockSite:
    """What a daemon needs to know about the block that it is to control."""

    scenario: Scenario
    """The scenario that runs."""
    condition: Condition
    """The condition it runs under."""
    sandbox: Sandbox
    """The sandbox with its groups."""
    latency: LatencyLines
    """Where the requests are logged, with the placeholders filled in; those of the first of
    several applications."""
    others: tuple[LatencyLines, ...] = ()
    """Where those of the further applications are logged."""
    units: tuple[UnitLines, ...]
    """Where the background reports its work, in the order of the slots."""
    limit_bytes: int
    """The zone's memory in this block."""
    out_dir: Path
    """The folder for the recording of the ticks."""

    @property
    def latencies(self) -> tuple[LatencyLines, ...]:
        """Where the requests of each application are logged."""
        return (self.latency, *self.others)


DaemonFactory = Callable[[BlockSite], AbstractContextManager[object]]
"""Starts the daemon for a block. Leaving the context stops it and restores everything."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ApplicationRequests:
    """The requests of a further protected application in one block."""

    name: str
    """Its name."""
    slo_ms: float
    """Its latency target."""
    requests: Requests
    """Every request, burn-in included."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BlockResult:
    """The result of one block."""

    scenario: str
    """The name of the scenario."""
    condition: Condition
    """Which programs ran, and with how much memory."""
    seed: int
    """The seed of the arrivals and the background."""
    start_s: float
    """CLOCK_MONOTONIC at the first scheduled arrivals, burn-in included."""
    end_s: float
    """CLOCK_MONOTONIC when the load was stopped."""
    burn_in_s: float
    """How long the block ran before the measurement began."""
    limit_bytes: int
    """The zone's memory."""
    requests: Requests
    """Every request, burn-in included; those of the first of several applications."""
    others: tuple[ApplicationRequests, ...] = ()
    """The requests of the further applications."""
    units: Units
    """The work of the background, burn-in included."""
    psi_some_share: float | None
    """Share of the measured time in which a task of the first protected group stalled for memory;
    ``None`` if the kernel does not report it."""
    oom_kills: int
    """Processes that the kernel killed because memory ran out."""
    limit_kills: int
    """Those among them that it killed because of a background group's own limit, which only the
    arm sets. Any other means that the block is invalid."""
    stolen_share: float
    """Steal time as a share of the CPU time in the measured time."""
    peer_kills: int = 0
    """Background processes that the block's peer ended, by its own log."""

    @property
    def measured(self) -> Requests:
        """The requests scheduled after the burn-in."""
        return self.requests.where(self.requests.scheduled_s >= self.start_s + self.burn_in_s)

    def units_per_s(self, slot: int) -> float | None:
        """Work of a slot per second after the burn-in; ``None`` if the slot never reported."""
        return self.units.rate_per_s(slot, self.start_s + self.burn_in_s, self.end_s)

    def latency_ms(self, quantile: float) -> float | None:
        """A quantile of the sojourn times after the burn-in; ``None`` without requests."""
        latencies = self.measured.sojourn_ms
        return float(np.quantile(latencies, quantile)) if len(latencies) else None
