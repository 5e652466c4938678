"""The loop of a trace: wait, read, hand on."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from stallward.lens.trace.targets import Target
from stallward.lens.trace.tick import Tick
from stallward.lens.trace.tracers.tracer import Tracer
from stallward.lens.trace.waiting import Stop

# ---------- When to read: at multiples of the period from the start, whatever reading takes

_ROUNDING: Final = 1e-6
"""The part of a period that a tick may be early: times are sums of fractions."""


@dataclass(slots=True)
class Schedule:
    """An absolute schedule, which does not drift. Pure: times come in.

    A tick whose time has passed before it could be read is lost, and counted; it is not made up
    for, since two readings at once would show nothing.
    """

    period_s: float
    start_s: float
    until_s: float = math.inf
    """No tick is due from here on."""
    number: int = 1
    """The next tick, or the one that is being read; the first is due at the start."""
    lost: int = field(default=0, init=False)

    @property
    def due_s(self) -> float:
        """When that tick is due."""
        return self.start_s + (self.number - 1) * self.period_s

    @property
    def over(self) -> bool:
        """Whether no tick is to come."""
        return self.number >= self._after_last

    @property
    def _after_last(self) -> float:
        return math.inf if self.until_s == math.inf else self._due_before(self.until_s) + 1

    def _due_before(self, time_s: float) -> int:
        """How many ticks are due before a time."""
        return math.ceil((time_s - self.start_s) / self.period_s - _ROUNDING)

    def advance(self, now_s: float) -> None:
        """Go on to the next tick that is still to come.

        Args:
            now_s: The time at which the last one had been read.
        """
        to_come = self._due_before(now_s) + 1
        following = max(self.number + 1, min(to_come, self._after_last))
        self.lost += int(following) - self.number - 1
        self.number = int(following)


class Sink(Protocol):
    """Takes the ticks of a trace."""

    def take(self, tick: Tick) -> None:
        """Take one tick."""


class End(StrEnum):
    """Why a trace ended."""

    TIME = "time"
    """It was as long as it should be."""
    TARGET = "target"
    """What was traced has ended."""
    STOPPED = "stopped"
    """Somebody has stopped it."""


@dataclass(slots=True)
class Summary:
    """How a trace went; it grows while the trace runs."""

    ticks: int = 0
    rows: int = 0
    lost: int = 0
    """Ticks whose time had passed before they could be read."""
    late_us: int = 0
    """How late the latest tick was read."""
    end: End | None = None
    """``None`` until it ends, and if an error has ended it."""

    @property
    def text(self) -> str:
        """One line about it."""
        due = self.ticks + self.lost
        share = f" ({100.0 * self.lost / due:.1f} %)" if self.lost else ""
        return (
            f"ticks {self.ticks:,}, rows {self.rows:,}, lost ticks {self.lost:,}{share}; "
            f"the latest read {self.late_us / 1000.0:.1f} ms after its time."
        )


def trace(
    tracer: Tracer,
    target: Target,
    sinks: Sequence[Sink],
    stop: Stop,
    *,
    period_s: float,
    seconds: float | None,
    summary: Summary,
) -> None:
    """Trace until it is stopped, the target has ended, or the time has passed.

    Args:
        tracer: Reads the rows.
        target: What is traced.
        sinks: Take the ticks.
        stop: Ends the trace.
        period_s: Time from one tick to the next.
        seconds: How long; ``None`` for as long as the target lives.
        summary: Is kept up to date, also if an error ends the trace.

    Raises:
        ActuatorError: If the trace cannot go on.
    """
    start_s = time.monotonic()
    until_s = math.inf if seconds is None else start_s + seconds
    schedule = Schedule(period_s=period_s, start_s=start_s, until_s=until_s)
    if target.pid is not None:
        stop.watch(target.pid)
    while True:
        if schedule.over:
            stop.wait(until_s)
            summary.end = End.STOPPED if stop.requested else End.TIME
            return
        stop.wait(schedule.due_s)
        if stop.requested:
            summary.end = End.STOPPED
            return
        began_s = time.monotonic()
        if target.ended():
            summary.end = End.TARGET
            _read(tracer, sinks, summary, number=schedule.number, began_s=began_s)
            return
        if began_s < schedule.due_s:  # a process that was watched has ended, and it is not over
            continue
        summary.late_us = max(summary.late_us, int((began_s - schedule.due_s) * 1e6))
        _read(tracer, sinks, summary, number=schedule.number, began_s=began_s)
        schedule.advance(time.monotonic())
        summary.lost = schedule.lost


def _read(
    tracer: Tracer, sinks: Sequence[Sink], summary: Summary, *, number: int, began_s: float
) -> None:
    """Read one tick and hand it on.

    Once more when the target has just ended: counters in the kernel have what it did at last.
    """
    wall_us = time.time_ns() // 1000
    rows = tracer.read()
    if not rows and summary.end is End.TARGET:
        return
    tick = Tick(number=number, time_us=int(began_s * 1e6), wall_us=wall_us, rows=rows)
    for sink in sinks:
        sink.take(tick)
    summary.ticks += 1
    summary.rows += len(rows)
