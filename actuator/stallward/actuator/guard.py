"""The guard: the deterministic layer between every controller and the kernel. Pure.

It holds whoever decides, a shipped rule as much as a remote client:

* only background slots are ever paused, limited, stopped or terminated;
* no slot is paused longer than ``max_pause_s``, nor more than ``max_pause_share`` of any
  minute, and it runs at least ``min_run_s`` after each thaw (a stopped process counts as its
  slot being paused);
* a limit is never below the slot's floor, and tightens at most one level a tick unless the
  slot is paused (releasing and squeezing what is paused are immediate);
* no group is limited while what it wants is not known (it has not held anything yet);
* what cannot be expressed on a node is refused as a whole, and the default controller decides.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from stallward.actuator.slots import SHARE_WINDOW_S
from stallward.agent.desired import (
    LIMIT_RATIOS,
    DesiredState,
    ProcessRef,
    SlotDesire,
    Tuning,
    limit_level,
)
from stallward.agent.sample import Sample, SlotState

MAX_SWAPPINESS: Final = 200
MAX_LIMIT_BYTES: Final = 1 << 62
_INIT_PID: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """How far a controller may go."""

    max_pause_s: float = 5.0
    max_pause_share: float = 0.8
    """Of any 60 s."""
    min_run_s: float = 0.5
    """After each thaw."""
    lift_budgets: bool = False
    """Lift the pause budgets and the limit's pace (never floors, protection or restoring), for
    a controller that a comparison must run as its source states it."""
    allow_terminate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardMemory:
    """What the guard keeps between ticks."""

    limits_bytes: tuple[int | None, ...] = ()
    """The limits granted last, per slot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the guard let through and what it changed."""

    granted: DesiredState
    notes: tuple[str, ...]
    memory: GuardMemory


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """Reviews desired states.

    Attributes:
        budgets: How far a controller may go.
        floors_bytes: The lowest limit of each slot.
        protected_pids: Processes never stopped or ended, besides pid 1.
        tick_period_s: A pause granted now lasts at least this long.
    """

    budgets: Budgets
    floors_bytes: tuple[int, ...]
    protected_pids: frozenset[int] = frozenset()
    tick_period_s: float = 0.1

    def invalid(self, desired: DesiredState) -> str:
        """Why ``desired`` cannot be expressed on this node; empty if it can."""
        if len(desired.slots) > len(self.floors_bytes):
            return f"{len(desired.slots)} slots desired, the node has {len(self.floors_bytes)}"
        for index, slot in enumerate(desired.slots):
            limit = slot.limit_bytes
            if limit is not None and not 0 < limit <= MAX_LIMIT_BYTES:
                return f"limit of slot {index} is {limit} bytes"
        return _invalid_tuning(desired.tuning)

    def review(self, desired: DesiredState, sample: Sample, memory: GuardMemory) -> Verdict:
        """Let through of ``desired`` (which must not be invalid) what the rules allow.

        Args:
            desired: What the controller wants.
            sample: This tick's sample; its slot states hold how long the levers were used.
            memory: From the last verdict; a fresh one at the start.
        """
        notes: list[str] = []
        slots: list[SlotDesire] = []
        may_pause: list[bool] = []
        for index, state in enumerate(sample.slot_states):
            want = desired.slot(index)
            refusal = self._pause_refusal(state)
            name = sample.slots[index].name
            may_pause.append(not refusal)
            if want.paused and refusal:
                notes.append(f"{name}: not paused, {refusal}")
            paused = want.paused and not refusal
            before = memory.limits_bytes[index] if index < len(memory.limits_bytes) else None
            limit, note = self._limit(index, want.limit_bytes, before, state, paused=paused)
            if note:
                notes.append(f"{name}: {note}")
            slots.append(SlotDesire(paused=paused, limit_bytes=limit))
        granted = DesiredState(
            slots=tuple(slots),
            tuning=desired.tuning,
            stopped=self._stopped(desired.stopped, sample, may_pause, notes),
            terminate=self._terminate(desired.terminate, sample, notes),
            protect_from_oom=desired.protect_from_oom,
        )
        limits = tuple(slot.limit_bytes for slot in slots)
        return Verdict(
            granted=granted, notes=tuple(notes), memory=GuardMemory(limits_bytes=limits)
        )

    def _pause_refusal(self, state: SlotState) -> str:
        """Why the slot may not be paused for the coming tick; empty if it may."""
        limits = self.budgets
        if limits.lift_budgets:
            return ""
        if state.paused and state.paused_for_s + self.tick_period_s > limits.max_pause_s:
            return f"paused {state.paused_for_s:.1f} s of at most {limits.max_pause_s:g} s"
        if not state.paused and state.since_thaw_s < limits.min_run_s:
            return f"thawed {state.since_thaw_s:.2f} s ago, runs at least {limits.min_run_s:g} s"
        if state.paused_share + self.tick_period_s / SHARE_WINDOW_S > limits.max_pause_share:
            return (
                f"paused {state.paused_share:.0%} of the last minute, "
                f"at most {limits.max_pause_share:.0%}"
            )
        return ""

    def _limit(
        self, index: int, want: int | None, before: int | None, state: SlotState, *, paused: bool
    ) -> tuple[int | None, str]:
        """The limit granted to a slot, and a note if it is not the one wanted."""
        if want is None:
            return None, ""
        if state.reference_bytes is None:
            return None, "not limited: it has held nothing yet, so what it wants is not known"
        limit, note = want, ""
        floor = self.floors_bytes[index]
        if limit < floor:
            limit, note = floor, f"limit raised to its floor, {floor} bytes"
        tightens = before is None or limit < before
        if paused or not tightens or self.budgets.lift_budgets:
            return limit, note
        level = limit_level(before, state.reference_bytes)
        ratio = LIMIT_RATIOS[min(level + 1, len(LIMIT_RATIOS) - 1)]
        lowest = max(int(state.reference_bytes * ratio), floor)
        if before is not None:
            lowest = min(lowest, before)
        if limit < lowest:
            return lowest, f"limit tightened one level only, to {lowest} bytes"
        return limit, note

    def _stopped(
        self,
        wanted: tuple[ProcessRef, ...],
        sample: Sample,
        may_pause: list[bool],
        notes: list[str],
    ) -> tuple[ProcessRef, ...]:
        slot_of = _slots_of(sample)
        granted = []
        for ref in wanted:
            slot = slot_of.get(ref)
            if slot is None or not self._may_touch(ref):
                notes.append(f"pid {ref.pid}: not stopped, not a background process")
            elif not may_pause[slot]:
                notes.append(f"pid {ref.pid}: not stopped, the pause budget of its slot is spent")
            else:
                granted.append(ref)
        return tuple(dict.fromkeys(granted))

    def _terminate(
        self, wanted: ProcessRef | None, sample: Sample, notes: list[str]
    ) -> ProcessRef | None:
        if wanted is None:
            return None
        if not self.budgets.allow_terminate:
            notes.append(f"pid {wanted.pid}: not terminated, the configuration does not allow it")
        elif wanted not in _slots_of(sample) or not self._may_touch(wanted):
            notes.append(f"pid {wanted.pid}: not terminated, not a background process")
        else:
            return wanted
        return None

    def _may_touch(self, ref: ProcessRef) -> bool:
        return ref.pid > _INIT_PID and ref.pid not in self.protected_pids


def _slots_of(sample: Sample) -> dict[ProcessRef, int]:
    """The background processes of a sample and the slot each belongs to."""
    return {
        ProcessRef(pid=p.pid, start_time_ticks=p.start_time_ticks): p.slot
        for p in sample.processes or ()
        if 0 <= p.slot < len(sample.slot_states)
    }


def slots_with_stopped(granted: DesiredState, sample: Sample) -> frozenset[int]:
    """The slots of which ``granted`` stops at least one process."""
    if not granted.stopped:
        return frozenset()
    slot_of = _slots_of(sample)
    return frozenset(slot_of[ref] for ref in granted.stopped if ref in slot_of)


def _outside(named: Iterable[tuple[str, float | None]], high: float) -> str:
    for name, value in named:
        if value is not None and not (math.isfinite(value) and 0 <= value <= high):
            return f"{name} is {value}, outside 0..{high:g}"
    return ""


def _invalid_tuning(tuning: Tuning) -> str:
    """Why a tuning cannot be expressed; empty if it can."""
    background, dirty = tuning.dirty_background_ratio, tuning.dirty_ratio
    return (
        _outside(
            (
                ("swappiness", tuning.swappiness),
                ("protected_swappiness", tuning.protected_swappiness),
            ),
            MAX_SWAPPINESS,
        )
        or _outside((("dirty_background_ratio", background), ("dirty_ratio", dirty)), 100)
        or _outside((("overcommit_memory", tuning.overcommit_memory),), 2)
    )
