"""The guard: the deterministic layer between every controller and the kernel. Pure.

Its rules hold for every controller, for a shipped rule as much as for a remote client:

* Only background slots are ever paused, limited, stopped or terminated, and no slot in which a
  protected process, the daemon or pid 1 runs.
* No slot is paused for longer than ``max_pause_s``, or for more than ``max_pause_share`` of any
  minute, and each runs at least ``min_run_s`` after each thaw. A slot with a stopped process
  counts as paused. A pod is not paused for longer than its probes allow, whatever is configured.
* A limit is never below the slot's floor, and tightens at most one level a tick unless the slot
  is paused. Releasing a limit and squeezing a paused slot are immediate.
* A limit is never so low that the slot cannot work under it: below what cannot be reclaimed, or
  below a size at which it has had to wait for memory.
* While nothing shows that memory is short, background work is held back for at most
  ``max_hold_without_pressure_share`` of any hour, whatever the latencies are.
* No group is limited before the memory that it needs is known, that is, before it has used some.
* Every slot keeps some CPU time and disk throughput, and never gets a higher priority than the
  protected application.
* A setting that another program has changed is left alone.
* Threads of the protected application get other settings only where the configuration allows it,
  and its total share stays (:mod:`stallward.actuator.guard.threads`).
* A desired state that cannot be expressed on the node is refused as a whole, and the default
  controller decides.

docs/reference/guard.md lists the rules, their defaults and what they guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.guard.changes import GuardChange, GuardRule, Unit, Wish
from stallward.actuator.guard.expressible import inexpressible
from stallward.actuator.guard.hold_budget import HoldMemory, note_holds, watch_holds, without_holds
from stallward.actuator.guard.problem import Problem
from stallward.actuator.guard.slot import (
    NO_ACTION,
    LimitMemory,
    SlotCase,
    grant_protected_low,
    grant_slot,
)
from stallward.actuator.guard.slot_tracker import SHARE_WINDOW_S
from stallward.actuator.guard.step_aside import Aside, foreign_pauses, step_aside, update_aside
from stallward.actuator.guard.threads import ThreadMemory, grant_threads
from stallward.agent.desired import RELEASED, DesiredState, ProcessRef, SlotDesire
from stallward.agent.file_pages import FilePages
from stallward.agent.sample import Sample

# ---------- Decides which single processes may be stopped or ended.

_INIT_PID: Final = 1


def protected_pids(sample: Sample, listed: Collection[int]) -> frozenset[int]:
    """Processes that no lever may touch: pid 1, the listed ones and the protected application."""
    application = (p.pid for p in sample.processes or () if p.slot < 0)
    return frozenset((_INIT_PID, *listed, *application))


def slots_with_pids(sample: Sample, pids: Collection[int]) -> dict[int, int]:
    """The slots in which one of ``pids`` runs, each with such a pid."""
    return {p.slot: p.pid for p in sample.processes or () if p.slot >= 0 and p.pid in pids}


def background_slots(sample: Sample, refs: Collection[ProcessRef]) -> dict[ProcessRef, int]:
    """The slots of those ``refs`` that are background processes in the sample."""
    pids = {ref.pid for ref in refs}
    slots = min(len(sample.slots), len(sample.slot_states))
    slot_of = {
        ProcessRef(pid=p.pid, start_time_ticks=p.start_time_ticks): p.slot
        for p in sample.processes or ()
        if p.pid in pids and 0 <= p.slot < slots
    }
    return {ref: slot for ref, slot in slot_of.items() if ref in refs}


def slots_with_stopped(granted: DesiredState, sample: Sample) -> frozenset[int]:
    """The slots in which ``granted`` stops at least one process."""
    if not granted.stopped:
        return frozenset()
    return frozenset(background_slots(sample, granted.stopped).values())


def grant_stops(
    desired: tuple[ProcessRef, ...],
    sample: Sample,
    protected: Collection[int],
    refusals: Sequence[GuardChange | None],
    changes: list[GuardChange],
) -> tuple[ProcessRef, ...]:
    """Grant to stop background processes whose slots may be paused now.

    Args:
        desired: The processes to stop.
        sample: The sample, which says in which slot each process runs.
        protected: Processes that are never touched.
        refusals: Why each slot may not be paused; ``None`` if it may.
        changes: One change is appended for each process that is left running.
    """
    if not desired:
        return ()
    slot_of = background_slots(sample, desired)
    granted = []
    for ref in dict.fromkeys(desired):
        slot = slot_of.get(ref)
        if slot is None or ref.pid in protected or slot >= len(refusals):
            changes.append(_process_change(ref, Wish.STOP, GuardRule.NOT_BACKGROUND))
        elif (refusal := refusals[slot]) is not None:
            changes.append(replace(refusal, wish=Wish.STOP, pid=ref.pid))
        else:
            granted.append(ref)
    return tuple(granted)


def grant_termination(
    desired: ProcessRef | None,
    sample: Sample,
    protected: Collection[int],
    changes: list[GuardChange],
    *,
    allowed: bool,
) -> ProcessRef | None:
    """Grant to end a process, if it is a background process and the configuration allows it."""
    if desired is None:
        return None
    if not allowed:
        changes.append(_process_change(desired, Wish.TERMINATE, GuardRule.NOT_ALLOWED))
    elif desired.pid in protected or desired not in background_slots(sample, (desired,)):
        changes.append(_process_change(desired, Wish.TERMINATE, GuardRule.NOT_BACKGROUND))
    else:
        return desired
    return None


def _process_change(ref: ProcessRef, wish: Wish, rule: GuardRule) -> GuardChange:
    return GuardChange(rule=rule, wish=wish, pid=ref.pid)


__all__ = ["Budgets", "Guard", "GuardMemory", "Verdict", "slots_with_stopped"]

MAX_CHANGES: Final = 16
"""The most changes that a tick record holds, even if a desired state breaks a thousand rules."""

_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardMemory:
    """The state that the guard keeps between ticks."""

    limits: tuple[LimitMemory, ...] = ()
    """One entry for each slot."""
    aside: Aside = ()
    """The levers that the guard steps aside from."""
    holds: HoldMemory = field(default_factory=HoldMemory)
    threads: ThreadMemory = field(default_factory=ThreadMemory)
    time_s: float = 0.0
    """The latest time of any sample; a later sample with an earlier time is given this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of a review: what is granted, and the changes to what was desired."""

    granted: DesiredState
    changes: tuple[GuardChange, ...]
    """The wishes that were refused or changed."""
    memory: GuardMemory
    """The state for the next tick."""
    changes_left_out: int = 0
    """The number of changes beyond :data:`MAX_CHANGES`, which are left out."""
    stepped_aside: tuple[str, ...] = ()
    """Levers that the guard steps aside from since this tick."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """Reviews the desired states of every controller."""

    budgets: Budgets
    floors_bytes: tuple[int, ...]
    """The lowest limit of each slot."""
    protected_pids: frozenset[int] = frozenset()
    """Processes that are never touched, and neither are the slots they run in; pid 1 is always
    among them."""
    tick_period_s: float = 0.1
    """The nominal time between ticks, for which a pause is granted unless :meth:`review` is told
    the longest time until the next tick."""
    zone_limit_bytes: int | None = None
    """The memory of the zone, used where the sample does not have it."""
    online_cpus: frozenset[int] | None = None
    """The CPUs that slots may run on; ``None`` if they are not known."""
    aside_s: float = 60.0
    """How long a setting is left alone after the last report of a foreign change to it."""
    growth_bytes: int | None = None
    """What programs may allocate until a limit follows them, where system calls fail under a limit
    that leaves nothing to reclaim (v1); else ``None``."""

    def invalid(self, desired: object) -> Problem | None:
        """Why ``desired`` cannot be expressed on this node; ``None`` if it can."""
        return inexpressible(desired, len(self.floors_bytes))

    def review(
        self,
        desired: DesiredState,
        sample: Sample,
        memory: GuardMemory,
        *,
        horizon_s: float | None = None,
    ) -> Verdict:
        """Grant the part of ``desired`` that the rules allow.

        Args:
            desired: The controller's desired state, which must not be :meth:`invalid`.
            sample: This tick's sample; its slot states say for how long each slot was paused.
            memory: The memory of the last verdict, or a new one at the start.
            horizon_s: The longest time until the next tick is due; one period by default.
        """
        horizon_s = self.tick_period_s if horizon_s is None else horizon_s
        sample = replace(sample, time_s=max(sample.time_s, memory.time_s))
        aside = update_aside(memory.aside, sample, self.aside_s)
        # While the application is not there, there is nothing to hold anything back for.
        remaining = desired if sample.protected.bound else RELEASED
        remaining, aside_changes = step_aside(remaining, aside, sample)
        paused_by_others = foreign_pauses(aside, sample)
        holds = watch_holds(memory.holds, sample, self.budgets, self.zone_limit_bytes, horizon_s)
        remaining, hold_changes = without_holds(remaining, sample, holds, self.budgets)
        changes = [*aside_changes, *hold_changes]
        protected = protected_pids(sample, self.protected_pids)
        protected_in_slot = slots_with_pids(sample, protected)
        slots: list[SlotDesire] = []
        limits: list[LimitMemory] = []
        refusals: list[GuardChange | None] = []
        # If the sample has another number of slots, its entries may belong to other slots.
        fits = len(sample.slots) == len(sample.slot_states) == len(self.floors_bytes)
        for index in range(len(self.floors_bytes)):
            slot = remaining.slot(index)
            known = memory.limits[index] if index < len(memory.limits) else LimitMemory()
            # Kills and waits are remembered even if the slot cannot be judged at this tick.
            granted, limit = NO_ACTION, known.learned
            refusal: GuardChange | None
            if not fits or not sample.slots[index].bound:
                refusal = _refusal(sample, index, GuardRule.NOT_IN_SAMPLE, wish=Wish.SLOT)
                if fits:
                    limit = LimitMemory()  # the next pod has counters of its own
            elif index in protected_in_slot:
                refusal = replace(
                    _refusal(sample, index, GuardRule.PROTECTED_PROCESS, wish=Wish.SLOT),
                    protected_pid=protected_in_slot[index],
                )
                if slot != NO_ACTION:
                    changes.append(refusal)
            else:
                refusal = self._pause_refusal(index, sample, horizon_s)
                granted, limit = self._slot(index, slot, sample, known, refusal, changes)
            slots.append(granted)
            limits.append(limit)
            if index in paused_by_others:
                refusal = _refusal(sample, index, GuardRule.SET_BY_OTHERS)
            refusals.append(refusal)
        budgets = self.budgets
        threads, thread_memory, thread_changes = grant_threads(
            remaining.protected_threads, sample, memory.threads, budgets
        )
        changes.extend(thread_changes)
        granted_state = replace(
            remaining,
            slots=tuple(slots),
            stopped=grant_stops(remaining.stopped, sample, protected, refusals, changes),
            terminate=grant_termination(
                remaining.terminate, sample, protected, changes, allowed=budgets.allow_terminate
            ),
            protected_low_bytes=grant_protected_low(
                remaining.protected_low_bytes,
                sample.zone.memory_limit_bytes or self.zone_limit_bytes,
                changes,
            ),
            file_pages=self._file_pages(remaining.file_pages, changes),
            protected_threads=threads,
        )
        before = {lever for lever, _ in memory.aside}
        return Verdict(
            granted=granted_state,
            changes=tuple(changes[:MAX_CHANGES]),
            changes_left_out=max(len(changes) - MAX_CHANGES, 0),
            memory=GuardMemory(
                limits=tuple(limits),
                aside=aside,
                holds=note_holds(holds, granted_state),
                threads=thread_memory,
                time_s=sample.time_s if math.isfinite(sample.time_s) else memory.time_s,
            ),
            stepped_aside=tuple(lever for lever, _ in aside if lever not in before),
        )

    def _pause_refusal(self, index: int, sample: Sample, horizon_s: float) -> GuardChange | None:
        """Why the slot may not be paused until the next tick; ``None`` if it may.

        Each comparison is true only for a number that is within the budget, so a NaN leads to a
        refusal.
        """
        budgets, state = self.budgets, sample.slot_states[index]
        lifted, longest_s = budgets.lift_budgets, state.longest_pause_s
        min_run_s = max(state.shortest_run_s or 0.0, 0.0 if lifted else budgets.min_run_s)
        ahead_s = horizon_s + budgets.late_allowance_s - _ROUNDING
        paused_for_s = state.paused_for_s if state.paused else 0.0
        if longest_s is not None and not paused_for_s + ahead_s <= longest_s:
            rule, found, bound = GuardRule.POD_PAUSE, paused_for_s, longest_s
        elif not lifted and not paused_for_s + ahead_s <= budgets.max_pause_s:
            rule, found, bound = GuardRule.MAX_PAUSE, paused_for_s, budgets.max_pause_s
        elif not state.paused and not state.since_thaw_s >= min_run_s - _ROUNDING:
            rule, found, bound = GuardRule.MIN_RUN, state.since_thaw_s, min_run_s
        elif lifted:
            return None
        elif not state.paused_share + ahead_s / SHARE_WINDOW_S <= budgets.max_pause_share:
            rule, found, bound = (
                GuardRule.PAUSE_SHARE, state.paused_share, budgets.max_pause_share,
            )  # fmt: skip
        else:
            return None
        return replace(
            _refusal(sample, index, rule),
            found=float(found),
            bound=float(bound),
            unit=Unit.SHARE if rule is GuardRule.PAUSE_SHARE else Unit.SECONDS,
        )

    def _slot(
        self,
        index: int,
        desired: SlotDesire,
        sample: Sample,
        known: LimitMemory,
        refusal: GuardChange | None,
        changes: list[GuardChange],
    ) -> tuple[SlotDesire, LimitMemory]:
        """Review one slot; returns what is granted and what to remember."""
        case = SlotCase(
            budgets=self.budgets,
            time_s=sample.time_s,
            tick_period_s=self.tick_period_s,
            floor_bytes=self.floors_bytes[index],
            index=index,
            state=sample.slot_states[index],
            group=sample.slots[index],
            paused=desired.paused and refusal is None,
            swap_free_bytes=sample.node.swap_free_bytes,
            growth_bytes=self.growth_bytes,
        )
        if desired.paused and refusal is not None:
            changes.append(refusal)
        granted, kept, slot_changes = grant_slot(desired, case, known, self.online_cpus)
        changes.extend(slot_changes)
        return granted, kept

    def _file_pages(
        self, desired: FilePages | None, changes: list[GuardChange]
    ) -> FilePages | None:
        """What is done to file pages; what runs is not paged out, as that takes all at once."""
        pages_out = desired is not None and desired.action == "pageout"
        if desired is None or not pages_out or self.budgets.lift_budgets:
            return desired
        changes.append(GuardChange(rule=GuardRule.STILL_RUNNING, wish=Wish.FILE_PAGES))
        return replace(desired, action="cold")


def _refusal(
    sample: Sample, index: int, rule: GuardRule, *, wish: Wish = Wish.PAUSE
) -> GuardChange:
    """The refusal of a wish about one slot, by default of its pause."""
    group = sample.slots[index].name if index < len(sample.slots) else ""
    return GuardChange(rule=rule, wish=wish, slot=index, group=group)
