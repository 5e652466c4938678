"""Which single processes may be stopped or ended. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from stallward.actuator.guard.changes import GuardChange, GuardRule, Wish
from stallward.agent.desired import DesiredState, ProcessRef
from stallward.agent.sample import Sample

_INIT_PID: Final = 1


def protected_pids(sample: Sample, listed: Collection[int]) -> frozenset[int]:
    """Processes that no lever may touch: pid 1, those listed, the protected application's."""
    application = (p.pid for p in sample.processes or () if p.slot < 0)
    return frozenset((_INIT_PID, *listed, *application))


def slots_holding(sample: Sample, pids: Collection[int]) -> dict[int, int]:
    """The slots in which one of ``pids`` runs, and which."""
    return {p.slot: p.pid for p in sample.processes or () if p.slot >= 0 and p.pid in pids}


def slots_of(sample: Sample, wanted: Collection[ProcessRef]) -> dict[ProcessRef, int]:
    """The slot of each of ``wanted`` that is a background process of the sample."""
    pids = {ref.pid for ref in wanted}
    slots = min(len(sample.slots), len(sample.slot_states))
    found = {
        ProcessRef(pid=p.pid, start_time_ticks=p.start_time_ticks): p.slot
        for p in sample.processes or ()
        if p.pid in pids and 0 <= p.slot < slots
    }
    return {ref: slot for ref, slot in found.items() if ref in wanted}


def slots_with_stopped(granted: DesiredState, sample: Sample) -> frozenset[int]:
    """The slots of which ``granted`` stops at least one process."""
    if not granted.stopped:
        return frozenset()
    return frozenset(slots_of(sample, granted.stopped).values())


def grant_stops(
    wanted: tuple[ProcessRef, ...],
    sample: Sample,
    protected: Collection[int],
    refusals: Sequence[GuardChange | None],
    changes: list[GuardChange],
) -> tuple[ProcessRef, ...]:
    """Those of ``wanted`` that are the background's and whose slot may be paused now.

    Args:
        wanted: Processes to stop.
        sample: Says what runs where.
        protected: Processes that are never touched.
        refusals: Per slot why it may not be paused; ``None`` if it may.
        changes: Gets one change for each process that is left running.
    """
    if not wanted:
        return ()
    slot_of = slots_of(sample, wanted)
    granted = []
    for ref in dict.fromkeys(wanted):
        slot = slot_of.get(ref)
        if slot is None or ref.pid in protected or slot >= len(refusals):
            changes.append(_of_process(ref, Wish.STOP, GuardRule.NOT_BACKGROUND))
        elif (refusal := refusals[slot]) is not None:
            changes.append(replace(refusal, wish=Wish.STOP, pid=ref.pid))
        else:
            granted.append(ref)
    return tuple(granted)


def grant_end(
    wanted: ProcessRef | None,
    sample: Sample,
    protected: Collection[int],
    changes: list[GuardChange],
    *,
    allowed: bool,
) -> ProcessRef | None:
    """``wanted`` if it is the background's and the configuration allows to end it."""
    if wanted is None:
        return None
    if not allowed:
        changes.append(_of_process(wanted, Wish.TERMINATE, GuardRule.NOT_ALLOWED))
    elif wanted.pid in protected or wanted not in slots_of(sample, (wanted,)):
        changes.append(_of_process(wanted, Wish.TERMINATE, GuardRule.NOT_BACKGROUND))
    else:
        return wanted
    return None


def _of_process(ref: ProcessRef, wish: Wish, rule: GuardRule) -> GuardChange:
    return GuardChange(rule=rule, wish=wish, pid=ref.pid)
