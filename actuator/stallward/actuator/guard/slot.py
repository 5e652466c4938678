"""What one slot is granted of what is wished of it. Pure."""

from __future__ import annotations

from typing import Final

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
) -> tuple[SlotDesire, LimitMemory, tuple[str, ...]]:
    """The slot's part of the granted state, what to remember, and notes.

    Args:
        want: What is wished.
        case: What bounds it; ``case.paused`` says whether a pause is granted.
        memory: Of this slot, from the last tick.
        online_cpus: CPUs there are; ``None`` if they are not known.
    """
    budgets = case.budgets
    kills = watch_kills(memory.kills, case.group, case.state, case.time_s)
    want, kill_note = without_limits(want, kills, budgets, case.time_s)
    if want == ALONE:
        kept = LimitMemory(step=memory.step, hard_step=memory.hard_step, kills=kills)
        return ALONE, kept, (kill_note,) if kill_note else ()
    (limit, limit_note), step = grant_limit(want.limit_bytes, case, memory)
    (hard, hard_note), hard_step = grant_hard_limit(want.hard_limit_bytes, limit, case, memory)
    swap_max, swap_note = grant_swap_max(want.swap_max_bytes, hard, budgets)
    reclaim, reclaim_note = grant_reclaim(want.reclaim_to_bytes, case)
    cores, cores_note = _at_least(want.cpu_max_cores, budgets.min_cpu_cores, "CPU limit", "cores")
    io_max, io_note = _at_least(
        want.io_max_bytes_per_s, budgets.min_io_bytes_per_s, "disk limit", "bytes/s"
    )
    nice, nice_note = _at_least(want.nice, NORMAL_NICE, "nice", "as no slot goes first")
    cpus, cpus_note = _there(want.cpus, online_cpus)
    advice, advice_note = _advice(want.page_advice, case)
    terminated = want.terminated and budgets.allow_terminate
    end_note = ""
    if want.terminated and not terminated:
        end_note = "not terminated, the configuration does not allow it"
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
    said = (
        kill_note, limit_note, hard_note, swap_note, reclaim_note, cores_note, io_note, nice_note,
        cpus_note, advice_note, end_note,
    )  # fmt: skip
    kills = note_limit(kills, granted, case.time_s)
    kept = LimitMemory(step=step, hard_bytes=hard, hard_step=hard_step, kills=kills)
    return granted, kept, tuple(filter(None, said))


def _at_least(want: float | None, least: float, name: str, unit: str) -> tuple[float | None, str]:
    if want is None or want >= least:
        return want, ""
    return least, f"{name} raised to {least:g} {unit}"


def _there(want: tuple[int, ...], online: frozenset[int] | None) -> tuple[tuple[int, ...], str]:
    """The CPUs of ``want`` that there are, in order; none is the slot's own choice."""
    if not want:
        return (), ""
    found = tuple(sorted({cpu for cpu in want if online is not None and cpu in online}))
    if not found:
        return (), "kept on its own CPUs, none of those wished is known to be online"
    missing = len(set(want)) - len(found)
    return found, f"{missing} CPUs that are not online left out" if missing else ""


def _advice(want: PageAdvice | None, case: SlotCase) -> tuple[PageAdvice | None, str]:
    """Paging out takes everything at once, so it is for what is paused."""
    if want != "pageout" or case.unpaced:
        return want, ""
    return "cold", "pages advised cold only, it is running"
