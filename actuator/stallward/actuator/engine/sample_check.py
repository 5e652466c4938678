"""Checks whether a sample can be used for a decision. Pure.

A sample is not used when its time did not advance or is too old, when it does not have the node's
slots, when it lacks an essential signal that earlier samples had, or when an essential total is
smaller than before (its group was made anew, so that no rate can be computed).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from stallward.actuator.record.reasons import (
    Cause,
    SampleTooOld,
    SignalLost,
    TimeNotFinite,
    TimeStoodStill,
    TotalWentBack,
    WrongSlots,
)
from stallward.agent.sample import Sample

ESSENTIAL: Final = (
    "protected memory pressure",
    "protected memory use",
    "zone memory pressure",
    "zone memory use",
    "request latency",
)
"""The signals that show how the protected application does. A node need not have all of them, but
one that was there must stay. The totals among them (the pressures) must not get smaller."""
_PROTECTED: Final = (0, 1)
"""The indices of those that are of the protected application's group."""
_TOTALS: Final = (0, 2)
"""The indices of the totals in :data:`ESSENTIAL`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleMemory:
    """What the check remembers of earlier samples."""

    time_s: float = -math.inf
    """The time of the last sample."""
    seen: tuple[bool, ...] = (False,) * len(ESSENTIAL)
    """Whether each essential signal was ever there."""
    totals_us: tuple[int | None, ...] = (None,) * len(_TOTALS)
    """The totals of the last sample."""
    protected: str = ""
    """The protected application's group in the last sample."""


def check_sample(
    sample: Sample, memory: SampleMemory, *, slots: int, age_s: float, stale_s: float
) -> tuple[Cause | None, SampleMemory]:
    """Return why ``sample`` cannot be used (``None`` if it can), and what to remember of it.

    Args:
        sample: The sample of this tick.
        memory: What the last check returned.
        slots: How many slots the node has.
        age_s: How old the sample is now.
        stale_s: How old it may be.
    """
    malformed = _malformed(sample, slots)
    if malformed is not None:
        return malformed, memory
    if not sample.time_s > memory.time_s:
        return TimeStoodStill(), memory
    if sample.protected.name != memory.protected:  # it is another pod now, or none
        memory = replace(
            memory,
            seen=tuple(s and i not in _PROTECTED for i, s in enumerate(memory.seen)),
            totals_us=(None, memory.totals_us[1]),
        )
    values = _essential(sample)
    present = tuple(value is not None for value in values)
    totals = tuple(values[i] for i in _TOTALS)
    seen = tuple(map(max, memory.seen, present))
    after = SampleMemory(
        time_s=sample.time_s, seen=seen, totals_us=totals, protected=sample.protected.name
    )
    if not age_s <= stale_s:
        return SampleTooOld(age_s=age_s, limit_s=stale_s), after
    return _lost(present, memory) or _went_back(totals, memory), after


def _malformed(sample: Sample, slots: int) -> Cause | None:
    """Return the cause for which nothing in the sample can be used, if there is one."""
    if not len(sample.slots) == len(sample.slot_states) == slots:
        return WrongSlots(slots=len(sample.slots), states=len(sample.slot_states), expected=slots)
    return None if math.isfinite(sample.time_s) else TimeNotFinite(time_s=sample.time_s)


def _lost(present: tuple[bool, ...], memory: SampleMemory) -> Cause | None:
    for name, was_present, is_present in zip(ESSENTIAL, memory.seen, present, strict=True):
        if was_present and not is_present:
            return SignalLost(signal=name)
    return None


def _went_back(totals: tuple[int | None, ...], memory: SampleMemory) -> Cause | None:
    for index, now, before in zip(_TOTALS, totals, memory.totals_us, strict=True):
        if now is not None and before is not None and now < before:
            return TotalWentBack(signal=ESSENTIAL[index])
    return None


def _essential(sample: Sample) -> tuple[int | None, ...]:
    protected, zone = sample.protected, sample.zone
    return (
        protected.psi.memory_some_us,
        protected.memory_usage_bytes,
        zone.psi.memory_some_us,
        zone.memory_usage_bytes,
        None if sample.latency is None else sample.latency.completed_total,
    )
