"""Whether a sample may be decided on. Pure.

A sample is not used when its time did not advance or is too old, when its slots are not the
node's, when an essential signal that was there before is gone, or when a total of one went back
(its group was made anew, so that no rate can be computed).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
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
"""What tells how the protected application is doing; where a node never had one of them, it is
not missed. Totals among them (the pressures) must not go back."""
_TOTALS: Final = (0, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleMemory:
    """What is remembered of earlier samples."""

    time_s: float = -math.inf
    seen: tuple[bool, ...] = (False,) * len(ESSENTIAL)
    totals_us: tuple[int | None, ...] = (None,) * len(_TOTALS)


def check_sample(
    sample: Sample, memory: SampleMemory, *, slots: int, age_s: float, stale_s: float
) -> tuple[Cause | None, SampleMemory]:
    """Why ``sample`` may not be decided on (``None`` if it may), and what to remember.

    Args:
        sample: This tick's.
        memory: From the check before.
        slots: How many slots the node has.
        age_s: How old the sample is now.
        stale_s: How old it may be.
    """
    unfit = _unfit(sample, slots)
    if unfit is not None:
        return unfit, memory
    if not sample.time_s > memory.time_s:
        return TimeStoodStill(), memory
    values = _essential(sample)
    there = tuple(value is not None for value in values)
    totals = tuple(values[i] for i in _TOTALS)
    seen = tuple(map(max, memory.seen, there))
    after = SampleMemory(time_s=sample.time_s, seen=seen, totals_us=totals)
    if not age_s <= stale_s:
        return SampleTooOld(age_s=age_s, limit_s=stale_s), after
    return _gone(there, memory) or _gone_back(totals, memory), after


def _unfit(sample: Sample, slots: int) -> Cause | None:
    """What makes nonsense of the whole sample; ``None`` if nothing does."""
    if not len(sample.slots) == len(sample.slot_states) == slots:
        return WrongSlots(slots=len(sample.slots), states=len(sample.slot_states), expected=slots)
    return None if math.isfinite(sample.time_s) else TimeNotFinite(time_s=sample.time_s)


def _gone(there: tuple[bool, ...], memory: SampleMemory) -> Cause | None:
    for name, was, is_there in zip(ESSENTIAL, memory.seen, there, strict=True):
        if was and not is_there:
            return SignalLost(signal=name)
    return None


def _gone_back(totals: tuple[int | None, ...], memory: SampleMemory) -> Cause | None:
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
