"""When the next tick is due: seldom while the node is calm, at the full rate otherwise.

Deadlines are absolute, so that lateness never adds up. Pure: time comes in.
"""

from __future__ import annotations

import math
from typing import Final

from stallward.actuator.config.tables import Rates
from stallward.agent.desired import DesiredState, does_nothing
from stallward.agent.sample import Sample

_STALL_SHARE: Final = 0.005
"""Share of a tick for which a calm protected application may wait for memory."""
_SLO_SHARE: Final = 0.8
"""Share of the SLO that its p95 may reach while it is calm."""
_WATCHED_AFTER_S: Final = 10.0
"""How long after the last sign of pressure a stall is looked for more often."""


class Pacer:
    """Deadlines at ``start_s + n * period_s``.

    Args:
        start_s: The first deadline, CLOCK_MONOTONIC.
        period_s: Between two deadlines.
    """

    def __init__(self, start_s: float, period_s: float) -> None:
        self._start_s = start_s
        self._period_s = period_s
        self._count = 0
        self.missed = 0
        """Deadlines that passed while a tick was still running."""

    @property
    def due_s(self) -> float:
        """The next deadline."""
        return self._start_s + self._count * self._period_s

    def advance(self, now_s: float) -> None:
        """Go to the first deadline after the present one that is not past: no bursts."""
        target = max(self._count + 1, math.ceil((now_s - self._start_s) / self._period_s))
        self.missed += target - self._count - 1
        self._count = target

    def restart(self, start_s: float, period_s: float) -> None:
        """Deadlines from ``start_s`` on, ``period_s`` apart."""
        self._start_s, self._period_s, self._count = start_s, period_s, 0


class Rhythm:
    """Decides tick by tick whether the node is calm.

    A node is calm when nothing is held, nobody holds a lease, and for ``calm_after_s`` the
    protected application has neither waited for memory nor come near its SLO. The averages of
    the observation know how much time has passed, so fewer ticks change no feature's meaning.

    Args:
        rates: How often to look.
        slo_ms: The latency target.
    """

    def __init__(self, rates: Rates, slo_ms: float) -> None:
        self._rates = rates
        self._slo_ms = slo_ms
        self._stalled: tuple[float, int | None] | None = None
        self._pressed_s = -math.inf
        self._calm = False
        self._quiet = False

    @property
    def calm(self) -> bool:
        """Whether the node is calm."""
        return self._calm

    @property
    def quiet(self) -> bool:
        """Whether the application did not stall in the last tick: a stall now is a new one."""
        return self._quiet

    @property
    def tick_s(self) -> float:
        """Between two ticks now."""
        rates = self._rates
        return max(rates.calm_tick_s, rates.tick_s) if self._calm else rates.tick_s

    def watch_s(self, now_s: float) -> float:
        """At most between two looks at the stall now."""
        recent = now_s - self._pressed_s < _WATCHED_AFTER_S
        return self._rates.watch_s if recent else self._rates.calm_watch_s

    def after_tick(
        self, sample: Sample, granted: DesiredState, *, held: bool, leased: bool
    ) -> None:
        """Take in one tick.

        Args:
            sample: What was read.
            granted: What the guard let through.
            held: Whether any lever is not at its original.
            leased: Whether a remote controller holds a lease.
        """
        now_s = sample.time_s
        stalls = self._stalls(sample)
        slow = sample.latency is not None and (
            (sample.latency.p95_ms or 0.0) > _SLO_SHARE * self._slo_ms
        )
        wants = held or leased or not does_nothing(granted)
        if stalls or slow:
            self._pressed_s = now_s
        self._quiet = not stalls
        if self._pressed_s == -math.inf:
            self._pressed_s = now_s  # what was before the first tick is not known
        self._calm = not wants and now_s - self._pressed_s >= self._rates.calm_after_s

    def _stalls(self, sample: Sample) -> bool:
        psi = sample.protected.psi.memory_some_us
        total_us = sample.node.psi.memory_some_us if psi is None else psi
        before, self._stalled = self._stalled, (sample.time_s, total_us)
        if before is None or before[1] is None or total_us is None:
            return False
        passed_us = (sample.time_s - before[0]) * 1e6
        return total_us - before[1] > _STALL_SHARE * passed_us
