"""Reviews what is desired of one slot. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Final

from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.guard.changes import GuardChange, GuardRule, Unit, Wish
from stallward.actuator.guard.workable import WorkableMemory, learn_workable, lowest_workable_bytes
from stallward.agent.desired import (
    LIMIT_RATIOS,
    MAX_LIMIT_BYTES,
    PageAdvice,
    SlotDesire,
    limit_level,
    takes_memory,
    without_memory_wishes,
)
from stallward.agent.sample import GroupSample, SlotState

# ---------- Lifts the limits of a slot for a while after the kernel killed a process under one. Pure
# A v1 limit is a hard limit: a process that touches all of its memory faster than it can be swapped
# is killed, however much swap is left. Limits are meant to slow work down, never to lose it.

_BLAMED_S: Final = 3.0
"""How long after a limit was in force a kill is still attributed to it. The slots' kill counts are
read in turn, so that a kill may appear some ticks after the limit was lifted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KillMemory:
    """The state that the guard keeps about the kills in one slot."""

    kills: int | None = None
    """The number of OOM kills that was last read; ``None`` if none was read yet."""
    limited_s: float = -math.inf
    """The time at which a limit was last granted or in force."""
    killed_s: float = -math.inf
    """The time of the last kill under a limit."""


def watch_kills(
    memory: KillMemory, group: GroupSample, state: SlotState, time_s: float
) -> KillMemory:
    """Update the state with one more sample."""
    limited_s = time_s if state.limit_bytes is not None else memory.limited_s
    kills = memory.kills if group.oom_kills is None else group.oom_kills
    grew = kills is not None and memory.kills is not None and kills > memory.kills
    blamed = grew and time_s - limited_s <= _BLAMED_S
    killed_s = time_s if blamed else memory.killed_s
    return KillMemory(kills=kills, limited_s=limited_s, killed_s=killed_s)


def without_limits(
    desired: SlotDesire, memory: KillMemory, budgets: Budgets, time_s: float
) -> tuple[SlotDesire, float | None]:
    """Remove everything that takes memory, for a while after a kill.

    Returns:
        The rest of ``desired``, and how many seconds ago the kill was; ``None`` if nothing was
        removed.
    """
    ago_s = time_s - memory.killed_s
    if budgets.allow_terminate or not ago_s < budgets.kill_wait_s:
        return desired, None
    if not takes_memory(desired):
        return desired, None
    return without_memory_wishes(desired), ago_s


def note_limit(memory: KillMemory, granted: SlotDesire, time_s: float) -> KillMemory:
    """Update the state with what was granted, if it limits the slot."""
    limits = (granted.limit_bytes, granted.hard_limit_bytes, granted.reclaim_to_bytes)
    if all(limit is None for limit in limits):
        return memory
    return replace(memory, limited_s=time_s)


# ---------- Bounds on how much memory is taken from a slot, and how fast. Pure
# Limits have levels: ``LIMIT_RATIOS`` of what the slot uses when nothing limits it. While the slot
# runs, a limit tightens by at most one level a tick, and ticks that follow each other in less than
# half a nominal period count as one. Loosening is immediate, and so is squeezing a paused slot.


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The last tightening of a limit: its time and the new limit."""

    time_s: float
    to_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitMemory:
    """The state that the guard keeps about the limits of one slot."""

    step: Step | None = None
    hard_bytes: int | None = None
    """The hard limit granted last."""
    hard_step: Step | None = None
    kills: KillMemory = field(default_factory=KillMemory)
    workable: WorkableMemory = field(default_factory=WorkableMemory)

    @property
    def learned(self) -> LimitMemory:
        """What stays known when no limit is in force any more: what limits did before."""
        return LimitMemory(kills=self.kills, workable=self.workable)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotCase:
    """One slot at one tick, with everything that bounds what is granted to it."""

    budgets: Budgets
    time_s: float
    tick_period_s: float
    floor_bytes: int
    index: int
    """The number of the slot."""
    state: SlotState
    group: GroupSample
    paused: bool
    """Whether a pause is granted at this tick."""
    swap_free_bytes: int | None = None
    """The free swap of the node."""
    growth_bytes: int | None = None
    """What programs may allocate until a limit follows them, where system calls fail under a limit
    that leaves nothing to reclaim (v1); else ``None``."""
    workable_bytes: int = 0
    """The lowest limit that the slot can work under."""

    @property
    def least(self) -> tuple[int, GuardRule]:
        """The lowest limit that may ever be granted, and the rule that says so."""
        if self.workable_bytes > self.floor_bytes:
            return self.workable_bytes, GuardRule.LOWEST_WORKABLE
        return self.floor_bytes, GuardRule.FLOOR

    @property
    def unpaced(self) -> bool:
        """Whether the slot's memory may be taken at once instead of level by level."""
        return self.paused or self.budgets.lift_budgets

    def change(
        self,
        wish: Wish,
        rule: GuardRule,
        *,
        found: float | None = None,
        bound: float | None = None,
        unit: Unit = Unit.NONE,
    ) -> GuardChange:
        """A change to a wish about this slot."""
        return GuardChange(
            rule=rule,
            wish=wish,
            slot=self.index,
            group=self.group.name,
            found=None if found is None else float(found),
            bound=None if bound is None else float(bound),
            unit=unit,
        )

    def lowest_bytes(self, before: int | None, step: Step | None) -> int | None:
        """The lowest limit that is allowed now: one level below ``before``.

        It is ``before`` itself where the slot's need or the time is not known.

        Args:
            before: The limit in force; ``None`` for none.
            step: The last tightening.
        """
        reference = self.state.reference_bytes
        if reference is None or not math.isfinite(self.time_s):
            return before
        level = min(limit_level(before, reference) + 1, len(LIMIT_RATIOS) - 1)
        lowest = max(int(reference * LIMIT_RATIOS[level]), self.least[0])
        if step is not None and not self.time_s - step.time_s >= self.tick_period_s / 2:
            # A tick so soon after the last step may repeat that step but go no further.
            lowest = max(lowest, step.to_bytes)
        return lowest if before is None else min(lowest, before)


Granted = tuple[int | None, GuardChange | None]
"""The value that is granted, and the change if it differs from the desired one."""


def grant_limit(
    desired: int | None, case: SlotCase, memory: LimitMemory
) -> tuple[Granted, Step | None]:
    """The soft limit that is granted, and the last tightening after it."""
    if desired is None:
        return (None, None), memory.step
    if case.state.reference_bytes is None:
        return (None, case.change(Wish.LIMIT, GuardRule.DEMAND_UNKNOWN)), memory.step
    return _pace(desired, case.state.limit_bytes, case, memory.step, Wish.LIMIT)


def grant_hard_limit(
    desired: int | None, limit: int | None, case: SlotCase, memory: LimitMemory
) -> tuple[Granted, Step | None]:
    """The hard limit that is granted, and the last tightening after it.

    The kernel kills inside a group that cannot stay under its hard limit. So, unless the
    configuration allows ending work, it is granted only beside a soft limit, which slows down
    whatever grows beyond it, and stays by a margin above that limit and above what the group uses.

    Args:
        desired: The desired hard limit; ``None`` for none.
        limit: The soft limit that is granted; the hard limit is not below it.
        case: The slot.
        memory: The slot's limits at the last tick.
    """
    before, step = memory.hard_bytes, memory.hard_step
    if desired is None:
        return (None, None), step
    if case.state.reference_bytes is None:
        return (None, case.change(Wish.HARD_LIMIT, GuardRule.DEMAND_UNKNOWN)), step
    kills = case.budgets.allow_terminate
    if limit is None and not kills:
        return (None, case.change(Wish.HARD_LIMIT, GuardRule.HARD_ALONE)), step
    (granted, change), last_step = _pace(desired, before, case, step, Wish.HARD_LIMIT)
    if granted is None:
        return (None, change), step
    margin = 0 if kills else case.budgets.hard_limit_margin_bytes
    if not kills:
        usage = case.group.memory_usage_bytes
        if usage is None:
            return (None, case.change(Wish.HARD_LIMIT, GuardRule.USAGE_UNKNOWN)), step
        if granted < usage + margin:
            granted = usage + margin
            change = _in_bytes(case, Wish.HARD_LIMIT, GuardRule.ABOVE_USAGE, granted)
    if limit is not None and granted < limit + margin:
        granted = limit + margin
        change = _in_bytes(case, Wish.HARD_LIMIT, GuardRule.ABOVE_LIMIT, granted)
    fits = granted <= MAX_LIMIT_BYTES  # a greater one would limit nothing, and no lever takes it
    return (granted if fits else None, change), last_step if fits else step


def _in_bytes(case: SlotCase, wish: Wish, rule: GuardRule, bound: int) -> GuardChange:
    return case.change(wish, rule, bound=bound, unit=Unit.BYTES)


def _pace(
    desired: int, before: int | None, case: SlotCase, step: Step | None, wish: Wish
) -> tuple[Granted, Step | None]:
    """The limit, not below the least one and at most one level tighter, and the last step."""
    limit, change = desired, None
    least, rule = case.least
    if limit < least:
        limit = least
        change = _in_bytes(case, wish, rule, limit)
    tightens = before is None or limit < before
    if case.unpaced or not tightens:
        return (limit, change), step
    lowest = case.lowest_bytes(before, step)
    if lowest is None:
        return (None, case.change(wish, GuardRule.NO_TIME)), step
    if limit < lowest:
        limit = lowest
        change = _in_bytes(case, wish, GuardRule.ONE_LEVEL, limit)
    if before is None or limit < before:
        again = step is not None and step.time_s == case.time_s
        step = step if again else Step(time_s=case.time_s, to_bytes=limit)
    return (limit, change), step


def grant_reclaim(desired: int | None, case: SlotCase) -> Granted:
    """The usage to reclaim down to: at least the floor, and one level a tick in a running slot."""
    if desired is None:
        return None, None
    usage, reference = case.group.memory_usage_bytes, case.state.reference_bytes
    if usage is None or reference is None:
        unknown = GuardRule.USAGE_UNKNOWN if usage is None else GuardRule.DEMAND_UNKNOWN
        return None, case.change(Wish.RECLAIM, unknown)
    lowest, rule = case.least
    if not case.unpaced:
        level = min(limit_level(usage, reference) + 1, len(LIMIT_RATIOS) - 1)
        one_level_down = int(reference * LIMIT_RATIOS[level])
        if one_level_down > lowest:
            lowest, rule = one_level_down, GuardRule.ONE_LEVEL
    if desired >= lowest:
        return desired, None
    return lowest, _in_bytes(case, Wish.RECLAIM, rule, lowest)


def grant_swap_max(desired: int | None, hard: int | None, case: SlotCase) -> Granted:
    """The swap limit; none beside a hard limit, since the kernel could then only kill."""
    if desired is None or hard is None or case.budgets.allow_terminate:
        return desired, None
    return None, case.change(Wish.SWAP_MAX, GuardRule.BESIDE_HARD_LIMIT)


def grant_protected_low(
    desired: int | None, zone_bytes: int | None, changes: list[GuardChange]
) -> int | None:
    """The guaranteed memory of the protected group, at most the memory of the zone."""
    if desired is None or (zone_bytes and desired <= zone_bytes):
        return desired
    if not zone_bytes:
        changes.append(GuardChange(rule=GuardRule.ZONE_UNKNOWN, wish=Wish.PROTECTED_LOW))
        return None
    changes.append(
        GuardChange(
            rule=GuardRule.ZONE_MEMORY,
            wish=Wish.PROTECTED_LOW,
            bound=float(zone_bytes),
            unit=Unit.BYTES,
        )
    )
    return zone_bytes


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
