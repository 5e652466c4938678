"""How often a policy in shadow mode would have decided otherwise, and when. Pure.

It compares wishes: what the guard would have made of those of the policy is not known, because it
was not asked. Nor is what they would have done to latencies; an experiment shows that.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import Final

from stallward.actuator.record.tick_record import TickRecord
from stallward.agent.desired import DesiredState, SlotDesire

LIMIT_RATIO: Final = 1.1
"""Limits differ if one is larger than the other by more than this."""
LONGEST_TICK_S: Final = 5.0
"""After a longer time without a tick nothing is known of the time between."""
_MOST_SPANS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotUse:
    """What one controller wanted of one slot."""

    paused_share: float
    """The share of the time in which it was to be paused."""
    limited_share: float
    """The share of the time in which it was to have a limit."""
    mean_limit_bytes: float | None
    """The mean of its limits while it had one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A time in which both wanted different things at every tick."""

    began_s: float
    """In Unix time."""
    length_s: float
    worst_p95_ms: float | None
    """The longest p95 in it; ``None`` if none was known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowSummary:
    """A shadow run."""

    seconds: float
    """How long a policy ran in shadow mode."""
    failed_share: float
    """The share of that in which it gave no usable decision."""
    differs_share: float
    """The share of the rest in which it wanted something else."""
    pauses_differ_share: float
    limits_differ_share: float
    tuning_differs_share: float
    decides: tuple[SlotUse, ...]
    """What the controller that decided wanted of each slot."""
    shadow: tuple[SlotUse, ...]
    """What the policy wanted."""
    spans: tuple[Span, ...]
    """The longest times in which they differed, longest first."""


@dataclass(slots=True)
class _SlotTimes:
    paused_s: float = 0.0
    limited_s: float = 0.0
    limit_byte_s: float = 0.0

    def add(self, desire: SlotDesire, passed_s: float) -> None:
        self.paused_s += passed_s * desire.paused
        if desire.limit_bytes is not None:
            self.limited_s += passed_s
            self.limit_byte_s += passed_s * desire.limit_bytes

    def use(self, compared_s: float) -> SlotUse:
        return SlotUse(
            paused_share=self.paused_s / compared_s,
            limited_share=self.limited_s / compared_s,
            mean_limit_bytes=self.limit_byte_s / self.limited_s if self.limited_s else None,
        )


@dataclass(slots=True)
class ShadowTally:
    """Adds up the ticks of a shadow run, in their order; others are passed over."""

    shadow_s: float = 0.0
    compared_s: float = 0.0
    pauses_s: float = 0.0
    limits_s: float = 0.0
    tuning_s: float = 0.0
    any_s: float = 0.0
    _times: tuple[list[_SlotTimes], list[_SlotTimes]] = field(default_factory=lambda: ([], []))
    _before: TickRecord | None = None
    _began: TickRecord | None = None
    _worst_p95_ms: float | None = None
    _spans: list[tuple[float, float, float | None]] = field(default_factory=list)

    def take(self, record: TickRecord) -> None:
        """Take one tick; it stands for the time since the one before."""
        before, self._before = self._before, record
        failed = record.reasons.watched_fault is not None
        shadow = record.shadow
        if before is None:
            return
        passed_s = record.time_s - before.time_s
        if (shadow is None and not failed) or not 0.0 < passed_s <= LONGEST_TICK_S:
            self._end_span(before)
            return
        self.shadow_s += passed_s
        if shadow is None or shadow.leased:
            self._end_span(before)
            return
        self.compared_s += passed_s
        decided, wanted = record.decision.decision.desired, shadow.decision.desired
        slots = len(record.sample.slots)
        pauses, limits, tuning = differences(decided, wanted, slots)
        self.pauses_s += passed_s * pauses
        self.limits_s += passed_s * limits
        self.tuning_s += passed_s * tuning
        for times, desired in zip(self._times, (decided, wanted), strict=True):
            while len(times) < slots:
                times.append(_SlotTimes())
            for index in range(slots):
                times[index].add(_desire(desired, index), passed_s)
        if pauses or limits or tuning:
            self.any_s += passed_s
            self._began = self._began or before
            latency = record.sample.latency
            if latency is not None and latency.p95_ms is not None:
                self._worst_p95_ms = max(self._worst_p95_ms or 0.0, latency.p95_ms)
        else:
            self._end_span(before)

    def _end_span(self, last: TickRecord) -> None:
        began, self._began = self._began, None
        if began is not None:
            length_s = last.time_s - began.time_s
            heapq.heappush(self._spans, (length_s, began.wall_time_s, self._worst_p95_ms))
            if len(self._spans) > _MOST_SPANS:
                heapq.heappop(self._spans)
        self._worst_p95_ms = None

    def summary(self) -> ShadowSummary | None:
        """The summary; ``None`` if no policy ran in shadow mode."""
        if self.shadow_s == 0.0:
            return None
        if self._before is not None:
            self._end_span(self._before)
        compared_s = self.compared_s or 1.0
        decides, shadow = (tuple(one.use(compared_s) for one in times) for times in self._times)
        return ShadowSummary(
            seconds=self.shadow_s,
            failed_share=1.0 - self.compared_s / self.shadow_s,
            differs_share=self.any_s / compared_s,
            pauses_differ_share=self.pauses_s / compared_s,
            limits_differ_share=self.limits_s / compared_s,
            tuning_differs_share=self.tuning_s / compared_s,
            decides=decides,
            shadow=shadow,
            spans=tuple(
                Span(began_s=began_s, length_s=length_s, worst_p95_ms=p95_ms)
                for length_s, began_s, p95_ms in sorted(
                    self._spans, key=lambda span: span[0], reverse=True
                )
            ),
        )


def differences(one: DesiredState, other: DesiredState, slots: int) -> tuple[bool, bool, bool]:
    """Whether two desired states differ in pauses, in limits, and in the tuning."""
    pairs = [(_desire(one, index), _desire(other, index)) for index in range(slots)]
    return (
        any(a.paused is not b.paused for a, b in pairs),
        any(_limits_differ(a.limit_bytes, b.limit_bytes) for a, b in pairs),
        one.tuning != other.tuning,
    )


def _desire(desired: DesiredState, slot: int) -> SlotDesire:
    """What is wanted of a slot: slots that are not named run without limits."""
    return desired.slots[slot] if slot < len(desired.slots) else SlotDesire()


def _limits_differ(one: int | None, other: int | None) -> bool:
    if one is None or other is None:
        return one is not other
    return max(one, other) > LIMIT_RATIO * min(one, other)
