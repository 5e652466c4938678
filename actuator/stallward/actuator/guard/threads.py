"""Decides which settings threads of the protected application may get. Pure.

Everything else that a controller wants is for the application's sake and reaches the background
only. These settings reach the application itself, so they need the configuration's consent
(``allow_protected_threads``), and:

* Only threads of the application that are in the sample are touched.
* Its total share of the CPU stays: the weights of all its threads never add up to more than those
  of their own nice values, and to less by no more than one nice step of one thread.
* No thread starves. A nice value stays within five steps of the thread's own. If a thread is ready
  and does not run for ``max_thread_wait_s`` while any thread has another setting than its own, all
  of them get their own back, for :data:`RELEASED_S`.
* A thread stays on the CPUs that its application gave it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.guard.changes import GuardChange, GuardRule, Unit, Wish
from stallward.agent.sample import Sample
from stallward.agent.threads import (
    BEST_NICE,
    MOST_STEPS,
    WORST_NICE,
    OwnValues,
    ThreadDesire,
    ThreadRef,
    ThreadSample,
    nice_weight,
    remember_own,
    total_weight,
)

RELEASED_S: Final = 10.0
"""For how long nothing is granted after a thread starved."""
_READY: Final = "R"


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadWait:
    """How long a thread has been ready without running."""

    run_us: int
    """What it had run when it was last seen to run."""
    since_s: float
    """When that was, or when it was last asleep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadMemory:
    """The state that the guard keeps about the application's threads."""

    own: Mapping[ThreadRef, OwnValues] = field(default_factory=dict)
    """What each thread has by itself."""
    granted: frozenset[ThreadRef] = frozenset()
    """The threads that were granted anything at the last tick."""
    waits: Mapping[ThreadRef, ThreadWait] = field(default_factory=dict)
    released_until_s: float = -math.inf
    """Until when nothing is granted."""


Granted = tuple[tuple[ThreadDesire, ...], ThreadMemory, tuple[GuardChange, ...]]
"""What is granted, what to remember, and what was refused or changed."""


def grant_threads(
    desired: tuple[ThreadDesire, ...], sample: Sample, memory: ThreadMemory, budgets: Budgets
) -> Granted:
    """Grant what is wanted of the application's threads as far as the rules allow.

    Args:
        desired: What a controller wants.
        sample: The sample.
        memory: The memory of the last tick.
        budgets: The guard's numbers.
    """
    if not budgets.allow_protected_threads:
        refused = (_change(GuardRule.NOT_ALLOWED),) if desired else ()
        return (), ThreadMemory(), refused
    threads = sample.protected_threads
    if threads is None:
        refused = (_change(GuardRule.NOT_IN_SAMPLE),) if desired else ()
        return (), ThreadMemory(released_until_s=memory.released_until_s), refused
    memory = replace(
        memory,
        own=remember_own(memory.own, threads, memory.granted, sample.time_s),
        waits=_waits(memory.waits, threads, sample.time_s),
    )
    memory, starved = _release_if_starved(memory, sample.time_s, budgets)
    if sample.time_s < memory.released_until_s:
        refused = (starved,) if starved is not None else ()
        return (), replace(memory, granted=frozenset()), refused
    changes: list[GuardChange] = []
    granted = [
        kept
        for desire in {one.thread: one for one in desired}.values()
        if (kept := _grant_one(desire, memory.own, changes)) is not None
    ]
    granted = _keep_total(granted, memory.own, changes)
    names = frozenset(one.thread for one in granted)
    return tuple(granted), replace(memory, granted=names), tuple(changes)


def _waits(
    before: Mapping[ThreadRef, ThreadWait], threads: tuple[ThreadSample, ...], time_s: float
) -> dict[ThreadRef, ThreadWait]:
    waits = {}
    for thread in threads:
        known = before.get(thread.ref)
        waiting = thread.state == _READY and known is not None and thread.run_us == known.run_us
        if waiting and known is not None:
            waits[thread.ref] = known
        else:
            waits[thread.ref] = ThreadWait(run_us=thread.run_us, since_s=time_s)
    return waits


def _release_if_starved(
    memory: ThreadMemory, time_s: float, budgets: Budgets
) -> tuple[ThreadMemory, GuardChange | None]:
    """Grant nothing for a while if a thread starves under what was granted."""
    longest = min(memory.waits.items(), key=lambda item: item[1].since_s, default=None)
    if longest is None or not memory.granted:
        return memory, None
    thread, wait = longest
    waited_s = time_s - wait.since_s
    if waited_s <= budgets.max_thread_wait_s:
        return memory, None
    change = replace(
        _change(GuardRule.THREAD_STARVED, thread),
        found=waited_s,
        bound=budgets.max_thread_wait_s,
        unit=Unit.SECONDS,
    )
    return replace(memory, released_until_s=time_s + RELEASED_S), change


def _grant_one(
    desire: ThreadDesire, own_values: Mapping[ThreadRef, OwnValues], changes: list[GuardChange]
) -> ThreadDesire | None:
    own = own_values.get(desire.thread)
    if own is None:
        changes.append(_change(GuardRule.NOT_A_THREAD, desire.thread))
        return None
    if desire.nice is not None:
        lowest = max(own.nice - MOST_STEPS, BEST_NICE)
        nice = min(max(desire.nice, lowest), own.nice + MOST_STEPS, WORST_NICE)
        if nice != desire.nice:
            change = _change(GuardRule.THREAD_STEPS, desire.thread)
            changes.append(replace(change, bound=float(nice), unit=Unit.NICE))
            desire = replace(desire, nice=nice)
    if desire.cpus:
        cpus = tuple(sorted(set(desire.cpus) & set(own.cpus)))
        if not cpus:
            changes.append(_change(GuardRule.NO_CPU_ONLINE, desire.thread))
        desire = replace(desire, cpus=cpus)
    return None if desire == ThreadDesire(thread=desire.thread) else desire


def _keep_total(
    granted: list[ThreadDesire],
    own_values: Mapping[ThreadRef, OwnValues],
    changes: list[GuardChange],
) -> list[ThreadDesire]:
    """Drop all nice values if the application's share would not stay."""
    own = {thread: values.nice for thread, values in own_values.items()}
    wanted = own | {one.thread: one.nice for one in granted if one.nice is not None}
    if wanted == own:
        return granted
    before, after = total_weight(own.values()), total_weight(wanted.values())
    best = min(own.values())
    step = nice_weight(best) - nice_weight(min(best + 1, WORST_NICE))
    if before - step < after <= before:
        return granted
    change = _change(GuardRule.TOTAL_SHARE)
    changes.append(replace(change, found=float(after), bound=float(before), unit=Unit.WEIGHT))
    without = (replace(one, nice=None) for one in granted)
    return [one for one in without if one != ThreadDesire(thread=one.thread)]


def _change(rule: GuardRule, thread: ThreadRef | None = None) -> GuardChange:
    tid = None if thread is None else thread.tid
    return GuardChange(rule=rule, wish=Wish.THREADS, tid=tid)
