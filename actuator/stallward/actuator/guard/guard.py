"""The guard: the deterministic layer between every controller and the kernel. Pure.

It holds whoever decides, a shipped rule as much as a remote client:

* only background slots are ever paused, limited, stopped or terminated, and none in which a
  protected process, the daemon or pid 1 runs;
* no slot is paused longer than ``max_pause_s``, nor more than ``max_pause_share`` of any
  minute, and it runs at least ``min_run_s`` after each thaw (a stopped process counts as its
  slot being paused);
* a limit is never below the slot's floor, and tightens at most one level a tick unless the
  slot is paused (releasing and squeezing what is paused are immediate);
* no group is limited while what it wants is not known (it has not held anything yet);
* every slot is left some CPU and disk, and is never put before the protected application;
* what somebody else has set is left alone;
* what cannot be expressed on a node is refused as a whole, and the default controller decides.

The rules, their defaults and what they guarantee: docs/reference/guard.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.guard.changes import GuardChange, GuardRule, Unit, Wish
from stallward.actuator.guard.expressible import inexpressible
from stallward.actuator.guard.limits import LimitMemory, SlotCase
from stallward.actuator.guard.problem import Problem
from stallward.actuator.guard.processes import (
    grant_end,
    grant_stops,
    protected_pids,
    slots_holding,
    slots_with_stopped,
)
from stallward.actuator.guard.slot import ALONE, grant_slot
from stallward.actuator.guard.slot_tracker import SHARE_WINDOW_S
from stallward.actuator.guard.step_aside import Aside, pauses_left, remember, step_aside
from stallward.agent.desired import DesiredState, SlotDesire
from stallward.agent.sample import Sample

__all__ = ["Budgets", "Guard", "GuardMemory", "Verdict", "slots_with_stopped"]

MAX_CHANGES: Final = 16
"""A desired state with a thousand faults must not make the tick record larger than that."""
_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardMemory:
    """What the guard keeps between ticks."""

    limits: tuple[LimitMemory, ...] = ()
    """Per slot."""
    aside: Aside = ()
    """Levers left to somebody else."""
    time_s: float = 0.0
    """The latest time of a sample; one that goes back counts as this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the guard let through and what it changed."""

    granted: DesiredState
    changes: tuple[GuardChange, ...]
    """What was granted less of than was wished."""
    memory: GuardMemory
    changes_left_out: int = 0
    """How many more changes there were than :data:`MAX_CHANGES`."""
    stepped_aside: tuple[str, ...] = ()
    """Levers found in somebody else's hands at this tick that were not before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """Reviews desired states.

    Attributes:
        budgets: How far a controller may go.
        floors_bytes: The lowest limit of each slot.
        protected_pids: Processes never touched, besides pid 1; nor the slots they run in.
        tick_period_s: Nominal; a pause granted lasts at least this long unless it is told how
            long the next tick may take to come.
        zone_limit_bytes: The memory shared; the sample's zone goes before it.
        online_cpus: CPUs that slots may be kept to; ``None`` where they are not known.
        aside_s: How long what somebody else has set is left alone after the last report of it.
    """

    budgets: Budgets
    floors_bytes: tuple[int, ...]
    protected_pids: frozenset[int] = frozenset()
    tick_period_s: float = 0.1
    zone_limit_bytes: int | None = None
    online_cpus: frozenset[int] | None = None
    aside_s: float = 60.0

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
        """Let through of ``desired`` (which must not be invalid) what the rules allow.

        Args:
            desired: What the controller wants.
            sample: This tick's sample; its slot states hold how long the levers were used.
            memory: From the last verdict; a fresh one at the start.
            horizon_s: The longest time until the next tick is due; one period by default.
        """
        horizon_s = self.tick_period_s if horizon_s is None else horizon_s
        sample = replace(sample, time_s=_not_back(sample.time_s, memory.time_s))
        aside = remember(memory.aside, sample, self.aside_s)
        wanted, aside_changes = step_aside(desired, aside, sample)
        left = pauses_left(aside, sample)
        changes = list(aside_changes)
        protected = protected_pids(sample, self.protected_pids)
        holding = slots_holding(sample, protected)
        slots: list[SlotDesire] = []
        limits: list[LimitMemory] = []
        refusals: list[GuardChange | None] = []
        # In a sample of another length no entry is known to be the slot of its position.
        fits = len(sample.slots) == len(sample.slot_states) == len(self.floors_bytes)
        for index in range(len(self.floors_bytes)):
            want = wanted.slot(index)
            known = memory.limits[index] if index < len(memory.limits) else LimitMemory()
            # What limits have killed is remembered also where the slot cannot be judged now.
            granted, limit = ALONE, LimitMemory(kills=known.kills)
            refusal: GuardChange | None
            if not fits:
                refusal = _refused(sample, index, GuardRule.NOT_IN_SAMPLE, wish=Wish.SLOT)
            elif index in holding:
                refusal = replace(
                    _refused(sample, index, GuardRule.PROTECTED_PROCESS, wish=Wish.SLOT),
                    protected_pid=holding[index],
                )
                if want != ALONE:
                    changes.append(refusal)
            else:
                refusal = self._pause_refusal(index, sample, horizon_s)
                granted, limit = self._slot(index, want, sample, known, refusal, changes)
            slots.append(granted)
            limits.append(limit)
            if index in left:
                refusal = _refused(sample, index, GuardRule.SET_BY_OTHERS)
            refusals.append(refusal)
        budgets = self.budgets
        granted_state = replace(
            wanted,
            slots=tuple(slots),
            stopped=grant_stops(wanted.stopped, sample, protected, refusals, changes),
            terminate=grant_end(
                wanted.terminate, sample, protected, changes, allowed=budgets.allow_terminate
            ),
            protected_low_bytes=self._protected_low(wanted.protected_low_bytes, sample, changes),
        )
        before = {lever for lever, _ in memory.aside}
        return Verdict(
            granted=granted_state,
            changes=tuple(changes[:MAX_CHANGES]),
            changes_left_out=max(len(changes) - MAX_CHANGES, 0),
            memory=GuardMemory(
                limits=tuple(limits),
                aside=aside,
                time_s=sample.time_s if math.isfinite(sample.time_s) else memory.time_s,
            ),
            stepped_aside=tuple(lever for lever, _ in aside if lever not in before),
        )

    def _pause_refusal(self, index: int, sample: Sample, horizon_s: float) -> GuardChange | None:
        """Why the slot may not be paused until the next tick; ``None`` if it may.

        Every comparison is true only of numbers that are known to be within the budget, so a
        NaN refuses.
        """
        budgets, state = self.budgets, sample.slot_states[index]
        if budgets.lift_budgets:
            return None
        ahead_s = horizon_s + budgets.late_allowance_s - _ROUNDING
        paused_for_s = state.paused_for_s if state.paused else 0.0
        if not paused_for_s + ahead_s <= budgets.max_pause_s:
            rule, found, bound = GuardRule.MAX_PAUSE, paused_for_s, budgets.max_pause_s
        elif not state.paused and not state.since_thaw_s >= budgets.min_run_s - _ROUNDING:
            rule, found, bound = GuardRule.MIN_RUN, state.since_thaw_s, budgets.min_run_s
        elif not state.paused_share + ahead_s / SHARE_WINDOW_S <= budgets.max_pause_share:
            rule, found, bound = (
                GuardRule.PAUSE_SHARE, state.paused_share, budgets.max_pause_share,
            )  # fmt: skip
        else:
            return None
        return replace(
            _refused(sample, index, rule),
            found=float(found),
            bound=float(bound),
            unit=Unit.SHARE if rule is GuardRule.PAUSE_SHARE else Unit.SECONDS,
        )

    def _slot(
        self,
        index: int,
        want: SlotDesire,
        sample: Sample,
        known: LimitMemory,
        refusal: GuardChange | None,
        changes: list[GuardChange],
    ) -> tuple[SlotDesire, LimitMemory]:
        """What is granted to one slot."""
        case = SlotCase(
            budgets=self.budgets,
            time_s=sample.time_s,
            tick_period_s=self.tick_period_s,
            floor_bytes=self.floors_bytes[index],
            index=index,
            state=sample.slot_states[index],
            group=sample.slots[index],
            paused=want.paused and refusal is None,
        )
        if want.paused and refusal is not None:
            changes.append(refusal)
        granted, kept, changed = grant_slot(want, case, known, self.online_cpus)
        changes.extend(changed)
        return granted, kept

    def _protected_low(
        self, want: int | None, sample: Sample, changes: list[GuardChange]
    ) -> int | None:
        """At most the memory that there is to share."""
        zone = sample.zone.memory_limit_bytes or self.zone_limit_bytes
        if want is None or (zone and want <= zone):
            return want
        if not zone:
            changes.append(GuardChange(rule=GuardRule.ZONE_UNKNOWN, wish=Wish.PROTECTED_LOW))
            return None
        changes.append(
            GuardChange(
                rule=GuardRule.ZONE_MEMORY,
                wish=Wish.PROTECTED_LOW,
                bound=float(zone),
                unit=Unit.BYTES,
            )
        )
        return zone


def _not_back(time_s: float, latest_s: float) -> float:
    return max(time_s, latest_s)


def _refused(
    sample: Sample, index: int, rule: GuardRule, *, wish: Wish = Wish.PAUSE
) -> GuardChange:
    """Why one slot may not be paused."""
    group = sample.slots[index].name if index < len(sample.slots) else ""
    return GuardChange(rule=rule, wish=wish, slot=index, group=group)
