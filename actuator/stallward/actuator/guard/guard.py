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
from stallward.actuator.guard.expressible import inexpressible
from stallward.actuator.guard.limits import LimitMemory, SlotCase
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
from stallward.agent.sample import Sample, SlotState

__all__ = ["Budgets", "Guard", "GuardMemory", "Verdict", "slots_with_stopped"]

MAX_NOTES: Final = 16
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
    notes: tuple[str, ...]
    memory: GuardMemory
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

    def invalid(self, desired: object) -> str:
        """Why ``desired`` cannot be expressed on this node; empty if it can."""
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
        wanted, aside_notes = step_aside(desired, aside, sample)
        left = pauses_left(aside, sample)
        notes: list[str] = []
        protected = protected_pids(sample, self.protected_pids)
        holding = slots_holding(sample, protected)
        slots: list[SlotDesire] = []
        limits: list[LimitMemory] = []
        refusals: list[str] = []
        # In a sample of another length no entry is known to be the slot of its position.
        fits = len(sample.slots) == len(sample.slot_states) == len(self.floors_bytes)
        for index in range(len(self.floors_bytes)):
            want = wanted.slot(index)
            known = memory.limits[index] if index < len(memory.limits) else LimitMemory()
            # What limits have killed is remembered also where the slot cannot be judged now.
            granted, limit = ALONE, LimitMemory(kills=known.kills)
            if not fits:
                refusal = "not in the sample"
            elif index in holding:
                refusal = f"left alone, process {holding[index]} in it is protected"
                if want != ALONE:
                    notes.append(f"{sample.slots[index].name}: {refusal}")
            else:
                refusal = self._pause_refusal(sample.slot_states[index], horizon_s)
                granted, limit = self._slot(index, want, sample, known, refusal, notes)
            slots.append(granted)
            limits.append(limit)
            refusals.append("left to somebody else" if index in left else refusal)
        budgets = self.budgets
        granted_state = replace(
            wanted,
            slots=tuple(slots),
            stopped=grant_stops(wanted.stopped, sample, protected, refusals, notes),
            terminate=grant_end(
                wanted.terminate, sample, protected, notes, allowed=budgets.allow_terminate
            ),
            protected_low_bytes=self._protected_low(wanted.protected_low_bytes, sample, notes),
        )
        before = {lever for lever, _ in memory.aside}
        return Verdict(
            granted=granted_state,
            notes=_shortened((*aside_notes, *notes)),
            memory=GuardMemory(
                limits=tuple(limits),
                aside=aside,
                time_s=sample.time_s if math.isfinite(sample.time_s) else memory.time_s,
            ),
            stepped_aside=tuple(lever for lever, _ in aside if lever not in before),
        )

    def _pause_refusal(self, state: SlotState, horizon_s: float) -> str:
        """Why the slot may not be paused until the next tick; empty if it may.

        Every comparison is true only of numbers that are known to be within the budget, so a
        NaN refuses.
        """
        budgets = self.budgets
        if budgets.lift_budgets:
            return ""
        ahead_s = horizon_s + budgets.late_allowance_s - _ROUNDING
        paused_for_s = state.paused_for_s if state.paused else 0.0
        if not paused_for_s + ahead_s <= budgets.max_pause_s:
            return f"paused {paused_for_s:.1f} s of at most {budgets.max_pause_s:g} s"
        if not state.paused and not state.since_thaw_s >= budgets.min_run_s - _ROUNDING:
            return f"thawed {state.since_thaw_s:.2f} s ago, runs at least {budgets.min_run_s:g} s"
        if not state.paused_share + ahead_s / SHARE_WINDOW_S <= budgets.max_pause_share:
            return (
                f"paused {state.paused_share:.0%} of the last minute, "
                f"at most {budgets.max_pause_share:.0%}"
            )
        return ""

    def _slot(
        self,
        index: int,
        want: SlotDesire,
        sample: Sample,
        known: LimitMemory,
        refusal: str,
        notes: list[str],
    ) -> tuple[SlotDesire, LimitMemory]:
        """What is granted to one slot."""
        group = sample.slots[index]
        case = SlotCase(
            budgets=self.budgets,
            time_s=sample.time_s,
            tick_period_s=self.tick_period_s,
            floor_bytes=self.floors_bytes[index],
            state=sample.slot_states[index],
            group=group,
            paused=want.paused and not refusal,
        )
        if want.paused and refusal:
            notes.append(f"{group.name}: not paused, {refusal}")
        granted, kept, said = grant_slot(want, case, known, self.online_cpus)
        notes.extend(f"{group.name}: {note}" for note in said)
        return granted, kept

    def _protected_low(self, want: int | None, sample: Sample, notes: list[str]) -> int | None:
        """At most the memory that there is to share."""
        zone = sample.zone.memory_limit_bytes or self.zone_limit_bytes
        if want is None or (zone and want <= zone):
            return want
        if not zone:
            notes.append("protected group: no guarantee, the zone's memory is not known")
            return None
        notes.append(f"protected group: guarantee cut to the zone's memory, {zone} bytes")
        return zone


def _not_back(time_s: float, latest_s: float) -> float:
    return max(time_s, latest_s)


def _shortened(notes: tuple[str, ...]) -> tuple[str, ...]:
    if len(notes) <= MAX_NOTES:
        return notes
    return (*notes[: MAX_NOTES - 1], f"and {len(notes) - MAX_NOTES + 1} more notes")
