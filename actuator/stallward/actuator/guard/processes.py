"""Decides which single processes may be stopped or ended. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from stallward.actuator.guard.changes import GuardChange, GuardRule, Wish
from stallward.agent.desired import DesiredState, ProcessRef
from stallward.agent.sample import Sample

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
