"""Bounds how long work is held back while nothing shows that memory is short. Pure.

To *hold back* is to pause a slot, to stop its processes, or to take memory from it. Latencies
alone do not prove memory pressure: a slow disk elsewhere, a busy CPU or a forged report raises
them as well, and holding the background back then only costs its work. The guard does not know
why a controller decides. So it looks at the node: a hold is *explained* by a sign of memory
pressure that is at most ``pressure_lasts_s`` old, and the others have a budget.

A hold that works keeps its signs away. So a sign counts for minutes, and memory counts as short
where it would be if everything were released. When the budget is used up, everything is released,
which is a trial: where memory is short, the next sign follows within seconds, and explains the
holds after it.

``pressure_signs`` says what a sign is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.guard.changes import GuardChange, GuardRule, Unit, Wish
from stallward.agent.desired import DesiredState, SlotDesire, takes_memory, without_memory_wishes
from stallward.agent.sample import Sample

# ---------- What shows that memory is short, or would be if nothing were held back.
# What holding back itself causes is no sign. A limit makes its group stall, refault and swap, and so
# does the way back of what was swapped, and the stall of the zone includes that of its groups. If
# that counted, holds would explain themselves. What memory has no part in is no sign either, such as
# files that are read for the first time, or kswapd on a machine whose memory is full of files.
#
# Where pressure cannot be seen at all, that counts as a sign: releasing what was needed costs the
# application more than holding back for nothing costs the background.
#
# docs/reference/guard.md has the reasons.

STALL_SHARE: Final = 0.01
"""The share of the time since the last tick from which a stall on memory is a sign."""
REFAULTS_PER_S: Final = 100.0
"""The refaults of the application from which they are a sign."""
DIRECT_SCANS_PER_S: Final = 100.0
"""The pages that the machine's own tasks have to scan for memory, from which that is a sign."""
SPARE_PART: Final = 10
"""Memory is short when less than this part of it, a tenth, would be left if everything were
released."""

Totals = tuple[int | None, int | None, int | None, int | None]
"""Stall of the application and of the zone in microseconds, the application's refaults, and the
machine's direct scans; each counts up, and is ``None`` where it was not read yet."""
NO_TOTALS: Final[Totals] = (None, None, None, None)
"""What is known before the first sample."""


def read_totals(sample: Sample) -> Totals:
    """The totals of a sample."""
    protected, node = sample.protected, sample.node
    return (
        protected.psi.memory_some_us,
        sample.zone.psi.memory_some_us,
        protected.refaulted_pages,
        node.scan_direct_pages,
    )


def newest(now: Totals, before: Totals) -> Totals:
    """The newest totals; those that cannot be read now keep their last value."""
    if None not in now:
        return now
    stall, zone_stall, refaults, scans = now
    return (
        before[0] if stall is None else stall,
        before[1] if zone_stall is None else zone_stall,
        before[2] if refaults is None else refaults,
        before[3] if scans is None else scans,
    )


def is_sign(
    sample: Sample,
    *,
    before: Totals,
    now: Totals,
    passed_s: float,
    disturbed: bool,
    zone_limit_bytes: int | None,
) -> bool:
    """Whether a sample is a sign of memory pressure, also where pressure cannot be seen at all.

    Args:
        sample: The sample.
        before: The totals at the last tick.
        now: The totals of this sample.
        passed_s: The time since the last tick.
        disturbed: Whether memory was taken from a slot in the last hour, so that the zone's
            stall may be that slot's, which reads back what was swapped.
        zone_limit_bytes: The memory of the zone, used where the sample does not have it.
    """
    seen = _grew_by_a_sign(before, now, passed_s, disturbed=disturbed)
    short = _would_be_short(sample, zone_limit_bytes)
    return seen is None or seen or short is None or short


def _grew_by_a_sign(
    before: Totals, now: Totals, passed_s: float, *, disturbed: bool
) -> bool | None:
    """Whether a total has grown so much that it is a sign; ``None`` if no stall can be seen."""
    least_us = STALL_SHARE * 1e6 * passed_s
    stall, zone_stall, refaults, scans = now
    if stall is None and refaults is None and (disturbed or zone_stall is None):
        return None
    return (
        _grew(before[0], stall, least_us)
        or (not disturbed and _grew(before[1], zone_stall, least_us))
        or _grew(before[2], refaults, REFAULTS_PER_S * passed_s)
        or _grew(before[3], scans, DIRECT_SCANS_PER_S * passed_s)
    )


def _grew(before: int | None, now: int | None, least: float) -> bool:
    return before is not None and now is not None and now - before > 0 and now - before >= least


def _would_be_short(sample: Sample, zone_limit_bytes: int | None) -> bool | None:
    """Whether the machine or the zone would be short of memory if nothing were held back.

    ``None`` if that is not known. Whole numbers are compared, since a broken sample may hold one
    that no float can.
    """
    wanted = _held_off_bytes(sample)
    node, zone = sample.node, sample.zone
    total, available = node.memory_total_bytes, node.memory_available_bytes
    short: bool | None = None
    if total and available is not None:
        short = SPARE_PART * (available - wanted) < total
    limit, used = zone.memory_limit_bytes or zone_limit_bytes, zone.memory_usage_bytes
    if short or not limit or (total and limit >= total):
        return short
    if used is None:
        return None
    used -= zone.inactive_file_bytes or 0
    return SPARE_PART * (limit - used - wanted) < limit


def _held_off_bytes(sample: Sample) -> int:
    """What the slots would use more if nothing held them back."""
    wanted = 0
    for group, state in zip(sample.slots, sample.slot_states, strict=False):
        usage, reference = group.memory_usage_bytes, state.reference_bytes
        if usage is not None and reference is not None and reference > usage:
            wanted += reference - usage
    return wanted


_HOUR_S: Final = 3600.0
_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldMemory:
    """The state that the guard keeps about holds and signs of memory pressure."""

    time_s: float = math.nan
    """The time of the last sample; NaN before the first."""
    sign_s: float = math.nan
    """The time of the last sign. The first sample counts as one, since what was before it is not
    known."""
    limited_s: float = -math.inf
    """The last time at which memory was being taken from a slot."""
    totals: Totals = NO_TOTALS
    held: bool = False
    """Whether something has been held back since the last sample."""
    limits: bool = False
    """Whether memory has been taken from a slot since the last sample."""
    used_s: float = 0.0
    """What holds without a sign have used up, less what was regained."""
    used_up: bool = False
    """Whether the budget was used up and has not regained half of it yet."""
    explained: bool = True
    """Whether the last sign explains holds until the next tick."""

    @property
    def refusing(self) -> bool:
        """Whether nothing may be held back now."""
        return self.used_up and not self.explained

    @property
    def since_sign_s(self) -> float | None:
        """The time since the last sign; ``None`` before the first sample."""
        since_s = self.time_s - self.sign_s
        return since_s if math.isfinite(since_s) else None


def is_bounded(budgets: Budgets) -> bool:
    """Whether holds without a sign of memory pressure have a bound."""
    return budgets.max_hold_without_pressure_share < 1.0 and not budgets.lift_budgets


def allowed_s(budgets: Budgets) -> float:
    """The most that holds without a sign may use up.

    It is half of what they may take of an hour. The other half is regained in the course of an
    hour, evenly. So in no hour, wherever it begins, do they take more than both halves.
    """
    return budgets.max_hold_without_pressure_share * _HOUR_S / 2.0


def watch_holds(
    memory: HoldMemory,
    sample: Sample,
    budgets: Budgets,
    zone_limit_bytes: int | None,
    horizon_s: float,
) -> HoldMemory:
    """Update the state with one more sample.

    While holds have no bound nothing is kept: with the next bound it begins as after a start.

    Args:
        memory: The state after the last tick.
        sample: This tick's sample.
        budgets: The bounds.
        zone_limit_bytes: The memory of the zone, used where the sample does not have it.
        horizon_s: The longest time until the next tick is due.
    """
    time_s = sample.time_s
    if not is_bounded(budgets):
        return HoldMemory()
    if not math.isfinite(time_s):
        return memory
    totals = read_totals(sample)
    if math.isnan(memory.time_s):
        return HoldMemory(time_s=time_s, sign_s=time_s, totals=totals)
    passed_s = max(time_s - memory.time_s, 0.0)
    limited_s = time_s if memory.limits else memory.limited_s
    disturbed = time_s - limited_s <= _HOUR_S
    sign = is_sign(
        sample,
        before=memory.totals,
        now=totals,
        passed_s=passed_s,
        disturbed=disturbed,
        zone_limit_bytes=zone_limit_bytes,
    )
    sign_s = time_s if sign else memory.sign_s
    most_s = allowed_s(budgets)
    used_s = max(memory.used_s - most_s / _HOUR_S * passed_s, 0.0)
    if memory.held and not memory.explained:
        used_s += passed_s
    room_from_s = most_s / 2.0 if memory.used_up else most_s
    used_up = used_s + horizon_s > room_from_s - _ROUNDING
    return HoldMemory(
        time_s=time_s,
        sign_s=sign_s,
        limited_s=limited_s,
        totals=newest(totals, memory.totals),
        held=memory.held,
        limits=memory.limits,
        used_s=used_s,
        used_up=used_up,
        explained=time_s - sign_s <= budgets.pressure_lasts_s,
    )


def without_holds(
    desired: DesiredState, sample: Sample, memory: HoldMemory, budgets: Budgets
) -> tuple[DesiredState, tuple[GuardChange, ...]]:
    """Remove everything that holds work back, if that is refused now.

    Returns:
        The rest of ``desired``, and a change for each slot and for each process that was to be
        stopped.
    """
    if not memory.refusing or not holds_back(desired):
        return desired, ()
    refusal = GuardChange(
        rule=GuardRule.NO_PRESSURE,
        wish=Wish.HOLD,
        found=memory.since_sign_s,
        bound=budgets.max_hold_without_pressure_share * _HOUR_S,
        unit=Unit.SECONDS,
    )
    slots = tuple(map(_released, desired.slots))
    changes = [
        replace(refusal, slot=index, group=_name(sample, index))
        for index, (rest, wanted) in enumerate(zip(slots, desired.slots, strict=True))
        if rest is not wanted
    ]
    changes += [replace(refusal, wish=Wish.STOP, pid=ref.pid) for ref in desired.stopped]
    return replace(desired, slots=slots, stopped=()), tuple(changes)


def note_holds(memory: HoldMemory, granted: DesiredState) -> HoldMemory:
    """Update the state with what was granted."""
    held, limits = holds_back(granted), any(map(takes_memory, granted.slots))
    if (held, limits) == (memory.held, memory.limits):
        return memory
    return replace(memory, held=held, limits=limits)


def holds_back(desired: DesiredState) -> bool:
    """Whether ``desired`` pauses a slot, stops a process or takes memory from a slot."""
    if desired.stopped:
        return True
    return any(slot.paused or takes_memory(slot) for slot in desired.slots)


def _released(slot: SlotDesire) -> SlotDesire:
    rest = without_memory_wishes(slot)
    return replace(rest, paused=False) if slot.paused else rest


def _name(sample: Sample, slot: int) -> str:
    return sample.slots[slot].name if slot < len(sample.slots) else ""
