"""When the next tick is due: seldom while the node is calm, at the full rate otherwise.

Deadlines are absolute, so that lateness never adds up. Pure: the time is an argument.
"""

from __future__ import annotations

import math
from typing import Final

from stallward.actuator.config.tables import Rates
from stallward.agent.desired import DesiredState, does_nothing
from stallward.agent.sample import Sample

_STALL_SHARE: Final = 0.005
"""The share of a tick for which a calm protected application may wait for memory."""
_SLO_SHARE: Final = 0.8
"""The share of the SLO that the p95 of a calm protected application may reach."""
_WATCHED_AFTER_S: Final = 10.0
"""For how long after the last sign of pressure the loop checks for stalls more often."""


class Pacer:
    """Deadlines at ``start_s + n * period_s``.

    Args:
        start_s: The first deadline, CLOCK_MONOTONIC.
        period_s: The time between two deadlines.
    """

    def __init__(self, start_s: float, period_s: float) -> None:
        self._start_s = start_s
        self._period_s = period_s
        self._count = 0
        self.missed = 0
        """How many deadlines passed while a tick was still running."""

    @property
    def due_s(self) -> float:
        """The next deadline."""
        return self._start_s + self._count * self._period_s

    def advance(self, now_s: float) -> None:
        """Go to the next deadline that is not past, so that missed ticks cause no burst."""
        target = max(self._count + 1, math.ceil((now_s - self._start_s) / self._period_s))
        self.missed += target - self._count - 1
        self._count = target

    def restart(self, start_s: float, period_s: float) -> None:
        """Start again with deadlines from ``start_s`` on, ``period_s`` apart."""
        self._start_s, self._period_s, self._count = start_s, period_s, 0


class TickRate:
    """Sets how often to tick: less often while the node is calm.

    A node is calm when no lever holds a setting, no client holds a lease, and for
    ``calm_after_s`` the protected application has neither waited for memory nor come near its
    SLO. The averages of the observation depend on the time that has passed, so all
    features mean the same with fewer ticks.

    A controller of threads never calms a node: what interferes with a thread is waits for the CPU,
    of which neither sign tells, and the threads are looked at only with a tick.

    Args:
        rates: The configured rates.
        slo_ms: The latency target.
    """

    def __init__(self, rates: Rates, slo_ms: float) -> None:
        self._rates = rates
        self._slo_ms = slo_ms
        self._last_stall: tuple[float, int | None] | None = None
        """The time and the stall total of the last sample."""
        self._pressure_s = -math.inf
        self._calm = False
        self._quiet = False

    def set_target(self, slo_ms: float) -> None:
        """Go on with another latency target."""
        self._slo_ms = slo_ms

    @property
    def calm(self) -> bool:
        """Whether the node is calm."""
        return self._calm

    @property
    def quiet(self) -> bool:
        """Whether the application did not stall at the last tick, so that a stall now is new."""
        return self._quiet

    @property
    def tick_s(self) -> float:
        """The time between two ticks now."""
        rates = self._rates
        return max(rates.calm_tick_s, rates.tick_s) if self._calm else rates.tick_s

    def watch_s(self, now_s: float) -> float:
        """Return the longest time between two checks for a stall now."""
        recent = now_s - self._pressure_s < _WATCHED_AFTER_S
        return self._rates.watch_s if recent else self._rates.calm_watch_s

    def after_tick(
        self, sample: Sample, granted: DesiredState, *, held: bool, leased: bool
    ) -> None:
        """Update the rate after a tick.

        Args:
            sample: The sample of the tick.
            granted: The state that the guard granted.
            held: Whether any setting may not have its original value.
            leased: Whether a client holds a lease.
        """
        now_s = sample.time_s
        stalls = self._stalls(sample)
        slow = sample.latency is not None and (
            (sample.latency.p95_ms or 0.0) > _SLO_SHARE * self._slo_ms
        )
        acts = held or leased or not does_nothing(granted)
        watches_threads = sample.protected_threads is not None
        if stalls or slow:
            self._pressure_s = now_s
        self._quiet = not stalls
        if self._pressure_s == -math.inf:
            self._pressure_s = now_s  # there may have been pressure before the first tick
        quiet_s = now_s - self._pressure_s
        self._calm = not (acts or watches_threads) and quiet_s >= self._rates.calm_after_s

    def _stalls(self, sample: Sample) -> bool:
        psi = sample.protected.psi.memory_some_us
        total_us = sample.node.psi.memory_some_us if psi is None else psi
        before, self._last_stall = self._last_stall, (sample.time_s, total_us)
        if before is None or before[1] is None or total_us is None:
            return False
        passed_us = (sample.time_s - before[0]) * 1e6
        return total_us - before[1] > _STALL_SHARE * passed_us
