"""One piece of advice, and when one is given. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import Final

from stallward.actuator.record.desired.changes import differ
from stallward.actuator.record.rates import stall_share
from stallward.actuator.record.reasons import Fault
from stallward.actuator.record.tick_record import Mode, NamedDecision, TickRecord
from stallward.agent.sample import Sample

STALL_OVER_S: Final = 1.0
"""The least time over which the share of the time that was stalled is measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What a policy would do, and what is done instead."""

    sequence: int
    """The number of the tick."""
    wall_time_s: float
    """The time of the tick."""
    advised: NamedDecision | None
    """The policy's decision, which no guard has reviewed; ``None`` if it gave no usable one."""
    fault: Fault | None
    """Why it gave none."""
    decided: NamedDecision
    """The decision that was followed, before the guard."""
    p95_ms: float | None
    """The application's latency; ``None`` if it is not known."""
    slo_ms: float | None
    """The latency target; ``None`` if it is not known."""
    stall_share: float | None
    """The share of the last second or two in which the application waited for memory."""
    left_out: int = 0
    """How many changes since the advice before were not told."""


class Adviser:
    """Finds what is to be told, tick by tick.

    The first advice of a policy is given at once. What it would do is told again when it has
    changed by more than a small step of a size, and no more often than once in ``interval_s``:
    then what it would do at the end of that time is told, unless that was told last.

    Args:
        interval_s: The least time between two pieces of advice.
        slo_ms: The latency target; ``None`` if it is not known.
    """

    def __init__(self, interval_s: float, slo_ms: float | None) -> None:
        self._interval_s = interval_s
        self._slo_ms = slo_ms
        self._told: Advice | None = None
        self._told_s = float("-inf")
        self._last: Advice | None = None
        self._changes = 0
        """How often the advice has changed since it was told."""
        self._earlier: deque[Sample] = deque()
        """The last samples, from the newest that is ``STALL_OVER_S`` old on, if one is."""

    def take(self, record: TickRecord) -> Advice | None:
        """Take one tick; returns the advice that is to be told now, if any is."""
        if record.mode is not Mode.ADVICE:
            self._told = self._last = None
            self._told_s = float("-inf")
            self._changes = 0
            self._earlier.clear()
            return None
        stall = self._stall_share(record.sample)
        shadow, fault = record.shadow, record.reasons.watched_fault
        if (shadow is None or shadow.leased) and fault is None:
            return None  # the policy was not asked at this tick
        advice = Advice(
            sequence=record.sequence,
            wall_time_s=record.wall_time_s,
            advised=None if shadow is None or shadow.leased else shadow,
            fault=fault,
            decided=record.decision,
            p95_ms=record.sample.latency.p95_ms if record.sample.latency else None,
            slo_ms=self._slo_ms,
            stall_share=stall,
        )
        self._changes += self._last is not None and _changed(self._last, advice)
        self._last = advice
        if record.time_s - self._told_s < self._interval_s:
            return None
        if self._told is not None and not _changed(self._told, advice):
            return None
        told = replace(advice, left_out=max(self._changes - 1, 0))
        self._told, self._told_s, self._changes = told, record.time_s, 0
        return told

    def _stall_share(self, sample: Sample) -> float | None:
        earlier = self._earlier
        earlier.append(sample)
        while len(earlier) > 2 and sample.time_s - earlier[1].time_s >= STALL_OVER_S:
            earlier.popleft()
        return stall_share(
            earlier[0].protected.psi.memory_some_us,
            sample.protected.psi.memory_some_us,
            sample.time_s - earlier[0].time_s,
        )


def _changed(before: Advice, now: Advice) -> bool:
    """Whether a policy advises something else, or another one does."""
    if before.advised is None or now.advised is None:
        kinds = [None if one.fault is None else one.fault.kind for one in (before, now)]
        return before.advised is not now.advised or kinds[0] is not kinds[1]
    return before.advised.controller != now.advised.controller or differ(
        before.advised.decision.desired, now.advised.decision.desired
    )
