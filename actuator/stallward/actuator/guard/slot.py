"""Reviews what is desired of one slot. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from stallward.actuator.guard.changes import GuardChange, GuardRule, Unit, Wish
from stallward.actuator.guard.limits import (
    LimitMemory,
    SlotCase,
    grant_hard_limit,
    grant_limit,
    grant_reclaim,
    grant_swap_max,
)
from stallward.actuator.guard.oom_kills import note_limit, watch_kills, without_limits
from stallward.actuator.guard.workable import learn_workable, lowest_workable_bytes
from stallward.agent.desired import PageAdvice, SlotDesire

NO_ACTION: Final = SlotDesire()
"""The desire that nothing is done to a slot."""
NORMAL_NICE: Final = 0


def grant_slot(
    desired: SlotDesire,
    case: SlotCase,
    memory: LimitMemory,
    online_cpus: frozenset[int] | None,
) -> tuple[SlotDesire, LimitMemory, tuple[GuardChange, ...]]:
    """The slot's part of the granted state, the state to keep, and the changes.

    Args:
        desired: What the controller wants of the slot.
        case: The slot and its bounds; ``case.paused`` says whether a pause is granted.
        memory: The state of this slot from the last tick.
        online_cpus: The CPUs that are online; ``None`` if they are not known.
    """
    budgets = case.budgets
    kills = watch_kills(memory.kills, case.group, case.state, case.time_s)
    workable = learn_workable(
        memory.workable,
        case.group,
        case.state,
        time_s=case.time_s,
        remember_s=budgets.kill_wait_s,
    )
    lowest = lowest_workable_bytes(
        workable,
        case.group,
        case.swap_free_bytes,
        growth_bytes=None if case.paused else case.growth_bytes,
    )
    case = replace(case, workable_bytes=lowest)
    desired, killed_ago_s = without_limits(desired, kills, budgets, case.time_s)
    killed = None
    if killed_ago_s is not None:
        killed = case.change(
            Wish.MEMORY, GuardRule.LIMIT_KILLED, found=killed_ago_s, unit=Unit.SECONDS
        )
    if desired == NO_ACTION:
        kept = LimitMemory(
            step=memory.step, hard_step=memory.hard_step, kills=kills, workable=workable
        )
        return NO_ACTION, kept, () if killed is None else (killed,)
    (limit, limit_change), step = grant_limit(desired.limit_bytes, case, memory)
    (hard, hard_change), hard_step = grant_hard_limit(
        desired.hard_limit_bytes, limit, case, memory
    )
    swap_max, swap_change = grant_swap_max(desired.swap_max_bytes, hard, case)
    reclaim, reclaim_change = grant_reclaim(desired.reclaim_to_bytes, case)
    cores, cores_change = _at_least(
        desired.cpu_max_cores, budgets.min_cpu_cores, case, Wish.CPU_MAX, Unit.CORES
    )
    io_max, io_change = _at_least(
        desired.io_max_bytes_per_s,
        budgets.min_io_bytes_per_s,
        case,
        Wish.IO_MAX,
        Unit.BYTES_PER_SECOND,
    )
    nice, nice_change = _at_least(desired.nice, NORMAL_NICE, case, Wish.NICE, Unit.NICE)
    cpus, cpus_change = _online(desired.cpus, online_cpus, case)
    advice, advice_change = _advice(desired.page_advice, case)
    terminated = desired.terminated and budgets.allow_terminate
    end_change = None
    if desired.terminated and not terminated:
        end_change = case.change(Wish.TERMINATE, GuardRule.NOT_ALLOWED)
    granted = SlotDesire(
        paused=case.paused,
        limit_bytes=limit,
        hard_limit_bytes=hard,
        swap_max_bytes=swap_max,
        reclaim_to_bytes=reclaim,
        cpu_weight=desired.cpu_weight,
        cpu_max_cores=cores,
        io_weight=desired.io_weight,
        io_max_bytes_per_s=None if io_max is None else int(io_max),
        nice=None if nice is None else int(nice),
        cpus=cpus,
        page_advice=advice,
        terminated=terminated,
    )
    changes = (
        killed, limit_change, hard_change, swap_change, reclaim_change, cores_change, io_change,
        nice_change, cpus_change, advice_change, end_change,
    )  # fmt: skip
    kills = note_limit(kills, granted, case.time_s)
    kept = LimitMemory(
        step=step, hard_bytes=hard, hard_step=hard_step, kills=kills, workable=workable
    )
    return granted, kept, tuple(change for change in changes if change is not None)


def _at_least(
    desired: float | None, least: float, case: SlotCase, wish: Wish, unit: Unit
) -> tuple[float | None, GuardChange | None]:
    """The desired value, raised to ``least``."""
    if desired is None or desired >= least:
        return desired, None
    return least, case.change(wish, GuardRule.MINIMUM, bound=least, unit=unit)


def _online(
    desired: tuple[int, ...], online: frozenset[int] | None, case: SlotCase
) -> tuple[tuple[int, ...], GuardChange | None]:
    """The desired CPUs that are online, in order; if empty, the slot keeps its own CPUs."""
    if not desired:
        return (), None
    cpus = tuple(sorted({cpu for cpu in desired if online is not None and cpu in online}))
    if not cpus:
        return (), case.change(Wish.CPUS, GuardRule.NO_CPU_ONLINE)
    offline = len(set(desired)) - len(cpus)
    if not offline:
        return cpus, None
    return cpus, case.change(Wish.CPUS, GuardRule.CPUS_OFFLINE, found=offline, unit=Unit.CPUS)


def _advice(
    desired: PageAdvice | None, case: SlotCase
) -> tuple[PageAdvice | None, GuardChange | None]:
    """The page advice; only a paused slot is paged out, because that takes everything at once."""
    if desired != "pageout" or case.unpaced:
        return desired, None
    return "cold", case.change(Wish.PAGE_ADVICE, GuardRule.STILL_RUNNING)
