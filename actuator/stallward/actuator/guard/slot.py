"""What one slot is granted of what is wished of it. Pure."""

from __future__ import annotations

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
from stallward.agent.desired import PageAdvice, SlotDesire

ALONE: Final = SlotDesire()
"""Nothing is done to the slot."""
NORMAL_NICE: Final = 0


def grant_slot(
    want: SlotDesire,
    case: SlotCase,
    memory: LimitMemory,
    online_cpus: frozenset[int] | None,
) -> tuple[SlotDesire, LimitMemory, tuple[GuardChange, ...]]:
    """The slot's part of the granted state, what to remember, and what was changed.

    Args:
        want: What is wished.
        case: What bounds it; ``case.paused`` says whether a pause is granted.
        memory: Of this slot, from the last tick.
        online_cpus: CPUs there are; ``None`` if they are not known.
    """
    budgets = case.budgets
    kills = watch_kills(memory.kills, case.group, case.state, case.time_s)
    want, killed_ago_s = without_limits(want, kills, budgets, case.time_s)
    killed = None
    if killed_ago_s is not None:
        killed = case.change(
            Wish.MEMORY, GuardRule.LIMIT_KILLED, found=killed_ago_s, unit=Unit.SECONDS
        )
    if want == ALONE:
        kept = LimitMemory(step=memory.step, hard_step=memory.hard_step, kills=kills)
        return ALONE, kept, () if killed is None else (killed,)
    (limit, limit_change), step = grant_limit(want.limit_bytes, case, memory)
    (hard, hard_change), hard_step = grant_hard_limit(want.hard_limit_bytes, limit, case, memory)
    swap_max, swap_change = grant_swap_max(want.swap_max_bytes, hard, case)
    reclaim, reclaim_change = grant_reclaim(want.reclaim_to_bytes, case)
    cores, cores_change = _at_least(
        want.cpu_max_cores, budgets.min_cpu_cores, case, Wish.CPU_MAX, Unit.CORES
    )
    io_max, io_change = _at_least(
        want.io_max_bytes_per_s,
        budgets.min_io_bytes_per_s,
        case,
        Wish.IO_MAX,
        Unit.BYTES_PER_SECOND,
    )
    nice, nice_change = _at_least(want.nice, NORMAL_NICE, case, Wish.NICE, Unit.NICE)
    cpus, cpus_change = _there(want.cpus, online_cpus, case)
    advice, advice_change = _advice(want.page_advice, case)
    terminated = want.terminated and budgets.allow_terminate
    end_change = None
    if want.terminated and not terminated:
        end_change = case.change(Wish.TERMINATE, GuardRule.NOT_ALLOWED)
    granted = SlotDesire(
        paused=case.paused,
        limit_bytes=limit,
        hard_limit_bytes=hard,
        swap_max_bytes=swap_max,
        reclaim_to_bytes=reclaim,
        cpu_weight=want.cpu_weight,
        cpu_max_cores=cores,
        io_weight=want.io_weight,
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
    kept = LimitMemory(step=step, hard_bytes=hard, hard_step=hard_step, kills=kills)
    return granted, kept, tuple(change for change in changes if change is not None)


def _at_least(
    want: float | None, least: float, case: SlotCase, wish: Wish, unit: Unit
) -> tuple[float | None, GuardChange | None]:
    if want is None or want >= least:
        return want, None
    return least, case.change(wish, GuardRule.MINIMUM, bound=least, unit=unit)


def _there(
    want: tuple[int, ...], online: frozenset[int] | None, case: SlotCase
) -> tuple[tuple[int, ...], GuardChange | None]:
    """The CPUs of ``want`` that there are, in order; none is the slot's own choice."""
    if not want:
        return (), None
    found = tuple(sorted({cpu for cpu in want if online is not None and cpu in online}))
    if not found:
        return (), case.change(Wish.CPUS, GuardRule.NO_CPU_ONLINE)
    offline = len(set(want)) - len(found)
    if not offline:
        return found, None
    return found, case.change(Wish.CPUS, GuardRule.CPUS_OFFLINE, found=offline, unit=Unit.CPUS)


def _advice(
    want: PageAdvice | None, case: SlotCase
) -> tuple[PageAdvice | None, GuardChange | None]:
    """Paging out takes everything at once, so it is for what is paused."""
    if want != "pageout" or case.unpaced:
        return want, None
    return "cold", case.change(Wish.PAGE_ADVICE, GuardRule.STILL_RUNNING)
