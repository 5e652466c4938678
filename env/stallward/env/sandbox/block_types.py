"""What goes into one live block and what comes out of it."""

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
    """What a daemon needs to know of the block it is to control.

    Args:
        scenario: The scenario that runs.
        condition: The condition it runs under.
        sandbox: The groups.
        latency: Where the requests are written, placeholders filled in.
        units: Where the background's work is written, in the order of the slots.
        limit_bytes: The zone's memory in this block.
        out_dir: Where the recording of ticks may be left.
    """

    scenario: Scenario
    condition: Condition
    sandbox: Sandbox
    latency: LatencyLines
    units: tuple[UnitLines, ...]
    limit_bytes: int
    out_dir: Path


DaemonFactory = Callable[[BlockSite], AbstractContextManager[object]]
"""Starts the daemon for a block; leaving the context stops it and restores everything."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BlockResult:
    """What one block left behind.

    Args:
        scenario: Name of the scenario.
        condition: What ran, and with how much memory.
        seed: Seed of the arrivals and the background.
        start_s: CLOCK_MONOTONIC at the first scheduled arrivals, burn-in included.
        end_s: CLOCK_MONOTONIC when the load was stopped.
        burn_in_s: How much of it at the start is not measured.
        limit_bytes: The zone's memory.
        requests: Every request, burn-in included.
        units: Work of the background, burn-in included.
        psi_some_share: Share of the measured time in which the protected group had a task
            stalled for memory; ``None`` if the kernel does not say.
        oom_kills: Processes the kernel killed for memory in the sandbox; not 0 means that the
            block is invalid.
        stolen_share: Share of the processors' measured time that the host gave to others.
    """

    scenario: str
    condition: Condition
    seed: int
    start_s: float
    end_s: float
    burn_in_s: float
    limit_bytes: int
    requests: Requests
    units: Units
    psi_some_share: float | None
    oom_kills: int
    stolen_share: float

    @property
    def measured(self) -> Requests:
        """The requests scheduled after the burn-in."""
        return self.requests.where(self.requests.scheduled_s >= self.start_s + self.burn_in_s)

    def units_per_s(self, slot: int) -> float | None:
        """Work of a slot per second after the burn-in; ``None`` if it never reported."""
        return self.units.rate_per_s(slot, self.start_s + self.burn_in_s, self.end_s)

    def latency_ms(self, quantile: float) -> float | None:
        """A quantile of the sojourn times after the burn-in; ``None`` without requests."""
        latencies = self.measured.sojourn_ms
        return float(np.quantile(latencies, quantile)) if len(latencies) else None
