"""What one block of an experiment showed, from the ticks of it. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from stallward.actuator.experiments.plan import Arm
from stallward.actuator.latency.silence import waited_ms
from stallward.agent.latency_histogram import LatencyHistogram
from stallward.agent.sample import UNBOUND

BATCH_S: Final = 10
"""Neighbouring seconds share their luck, so what is certain is judged by batches of them."""
_LEAST_SHARE: Final = 0.5
"""A block counts if requests were answered in at least this share of its seconds."""


class Loss(StrEnum):
    """Why a block does not count."""

    NONE = "none"
    """It counts."""
    NO_REQUESTS = "no-requests"
    """Requests were answered, or are known to have waited, in less than half of its seconds."""
    LEASE = "lease"
    """A client's lease decided."""
    OTHER_CONTROLLER = "other-controller"
    """The controller of the arm did not decide: it could not be loaded, or was replaced."""
    LOOP_SILENT = "loop-silent"
    """The loop was restarted, or ticks are missing."""
    SERVICE_RESTARTED = "service-restarted"
    """The service or the daemon was restarted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockResult:
    """One block that ended."""

    pair: int
    arm: Arm
    began_s: float
    """When it began, in Unix time."""
    loss: Loss = Loss.NONE
    seconds: int = 0
    """In how many seconds requests were answered, or none was although one waited."""
    attainment: float | None = None
    """The share of those whose p95 met the target; what waited did not."""
    p95_ms: float | None = None
    """The geometric mean of their p95."""
    worst_ms: float | None = None
    """The p95 that one of them in twenty exceeds."""
    background_cores: float | None = None
    """The processor time of the background, per second."""
    background_units_per_s: float | None = None
    """The work of the background by its own counters; ``None`` if it is not known."""
    work_unit: str = ""
    """The unit of that work; empty if the slots have no counters of one unit, so that processor
    time counts as work."""
    fallback_share: float = 0.0
    """The share of ticks at which the default controller decided in place of a policy. They
    count: falling back is a part of what a policy does."""
    batches: tuple[float, ...] = ()
    """The share of each ten seconds in which the target was kept."""
    latencies: LatencyHistogram | None = None
    """The latencies of all its requests; ``None`` if an earlier version ran it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotTotals:
    """The work of one slot so far: its units, and the time in which they are known."""

    units: float
    known_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TickFacts:
    """What a block needs of one tick."""

    time_s: float
    """CLOCK_MONOTONIC."""
    p95_ms: float | None
    """The p95 of the last second; ``None`` if no request was answered."""
    longest_ms: float | None = None
    """The longest latency of the last second."""
    background_cpu_us: int | None
    """The processor time of all slots so far; ``None`` if it is not known."""
    work_unit: str = ""
    """The unit in which all slots count their work; empty if there is none."""
    work: tuple[SlotTotals, ...] = ()
    """The work of each slot; empty without such a unit."""
    new_requests: LatencyHistogram | None = None
    """The requests since the last tick; ``None`` if they are not known."""
    fallback: bool = False
    leased: bool = False
    fits: bool = True
    """Whether the controller of the arm is in force."""


class BlockTally:
    """Adds up the ticks of one block.

    Seconds without answers count where the next answer shows that its request had waited in them
    for longer than the target (``stallward.actuator.latency.silence``), each with the time that it
    had waited by then. The answer may come after the block.

    Args:
        slo_ms: The latency target.
        silence_s: A longer time between two ticks loses the block.
    """

    def __init__(self, *, slo_ms: float, silence_s: float) -> None:
        self._slo_ms = slo_ms
        self._silence_s = silence_s
        self._p95s_ms: list[float] = []
        self._latencies: Counter[int] = Counter()
        self._latencies_known = False
        self._second = 0
        """The last second of which is known whether requests were answered or waited."""
        self._ticks = self._fallbacks = 0
        self._grown: list[SlotTotals] = []
        """The growth of each slot's work, and the time in which it is known."""
        self._first: TickFacts | None = None
        self._last: TickFacts | None = None
        self.loss = Loss.NONE

    @property
    def batches(self) -> tuple[float, ...]:
        """The share of each whole batch of seconds in which the target was kept."""
        met = [p95_ms <= self._slo_ms for p95_ms in self._p95s_ms]
        whole = len(met) // BATCH_S
        return tuple(sum(met[k * BATCH_S : (k + 1) * BATCH_S]) / BATCH_S for k in range(whole))

    def take(self, tick: TickFacts) -> None:
        """Take one tick; the first that does not fit loses the block."""
        if self.loss is not Loss.NONE:
            return
        second = int(tick.time_s)
        if self._first is None:
            self._second = second - 1
        if tick.leased:
            self.loss = Loss.LEASE
        elif not tick.fits:
            self.loss = Loss.OTHER_CONTROLLER
        elif self._last is not None and tick.time_s - self._last.time_s > self._silence_s:
            self.loss = Loss.LOOP_SILENT
        self._add_work(tick)
        self._first, self._last = self._first or tick, tick
        self._ticks += 1
        self._fallbacks += tick.fallback
        if tick.new_requests is not None:
            self._latencies_known = True
            self._latencies.update(tick.new_requests.as_counts())
        if tick.p95_ms is not None and second != self._second:
            self.note_answer(tick.time_s, tick.longest_ms)
            self._second = second
            self._p95s_ms.append(tick.p95_ms)

    def note_answer(self, time_s: float, longest_ms: float | None) -> None:
        """Count the seconds without answers in which a request waited that is answered now.

        Args:
            time_s: The time of the first tick with an answer since then, in the block or after it.
            longest_ms: The longest latency of the second before.
        """
        if self._last is None or longest_ms is None:
            return
        end = min(int(time_s), int(self._last.time_s) + 1)
        waits_ms = (
            waited_ms(second + 1.0, answered_s=time_s, longest_ms=longest_ms)
            for second in range(self._second + 1, end)
        )
        self._p95s_ms += [waited for waited in waits_ms if waited > self._slo_ms]
        self._second = max(self._second, end - 1)

    def result(self, *, pair: int, arm: Arm, began_s: float, block_s: float) -> BlockResult:
        """What the block showed."""
        seconds = len(self._p95s_ms)
        loss = self.loss
        if loss is Loss.NONE and seconds < _LEAST_SHARE * block_s:
            loss = Loss.NO_REQUESTS
        if loss is not Loss.NONE:
            return BlockResult(pair=pair, arm=arm, began_s=began_s, loss=loss, seconds=seconds)
        ordered = sorted(self._p95s_ms)
        logs = [math.log(max(one, 1e-3)) for one in ordered]
        met = sum(one <= self._slo_ms for one in ordered)
        return BlockResult(
            pair=pair,
            arm=arm,
            began_s=began_s,
            seconds=seconds,
            attainment=met / seconds,
            p95_ms=math.exp(math.fsum(logs) / seconds),
            worst_ms=ordered[math.ceil(0.95 * seconds) - 1],
            background_cores=self._background_cores(),
            background_units_per_s=self._background_units_per_s(),
            work_unit="" if self._last is None else self._last.work_unit,
            fallback_share=self._fallbacks / self._ticks,
            batches=self.batches,
            latencies=LatencyHistogram.of(self._latencies) if self._latencies_known else None,
        )

    def _add_work(self, tick: TickFacts) -> None:
        """Add what the slots have done since the last tick, unless a counter was started again."""
        before = None if self._last is None else self._last.work
        if before is None or len(before) != len(tick.work):
            self._grown = [SlotTotals(units=0.0, known_s=0.0)] * len(tick.work)
            return
        for slot, (old, new) in enumerate(zip(before, tick.work, strict=True)):
            units, known_s = new.units - old.units, new.known_s - old.known_s
            if units >= 0.0 and known_s >= 0.0:
                sum_ = self._grown[slot]
                self._grown[slot] = SlotTotals(
                    units=sum_.units + units, known_s=sum_.known_s + known_s
                )

    def _background_units_per_s(self) -> float | None:
        """The work of all slots per second; ``None`` if that of one is known too seldom."""
        first, last = self._first, self._last
        if first is None or last is None or not self._grown:
            return None
        least_s = _LEAST_SHARE * (last.time_s - first.time_s)
        if any(one.known_s <= 0.0 or one.known_s < least_s for one in self._grown):
            return None
        return math.fsum(one.units / one.known_s for one in self._grown)

    def _background_cores(self) -> float | None:
        first, last = self._first, self._last
        if first is None or last is None or last.time_s <= first.time_s:
            return None
        if first.background_cpu_us is None or last.background_cpu_us is None:
            return None
        grown_us = last.background_cpu_us - first.background_cpu_us
        return max(grown_us, 0) / 1e6 / (last.time_s - first.time_s)


class BackgroundCpu:
    """Adds up what the slots use, tick by tick.

    A pod's group has its own total, from the pod's start. So a slot counts only between two ticks
    at which it has the same group, and not while it is empty.
    """

    def __init__(self) -> None:
        self._before: tuple[tuple[str, int | None], ...] = ()
        self._total_us = 0

    def take(self, slots: Sequence[tuple[str, int | None]]) -> int | None:
        """Return the time so far; ``None`` if a group does not tell its own.

        Args:
            slots: Each slot's group, and the processor time of that so far in us.
        """
        before, self._before = self._before, tuple(slots)
        if len(before) == len(self._before):
            for (old_group, old_us), (group, used_us) in zip(before, self._before, strict=True):
                if group == old_group and old_us is not None and used_us is not None:
                    self._total_us += max(used_us - old_us, 0)
        known = all(us is not None or group.startswith(UNBOUND) for group, us in self._before)
        return self._total_us if known else None
