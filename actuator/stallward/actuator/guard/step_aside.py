"""Stepping aside: the guard leaves a setting alone that another program has changed. Pure.

A lever reports itself ``foreign`` in the sample when it finds another value than it wrote. The
guard then removes its setting from the granted state while the report stands and for a while
after it, because the lever forgets the change once nothing is desired of it. So the daemon never
fights with the other program.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from stallward.actuator.guard.changes import GuardChange, GuardRule, Wish
from stallward.agent.desired import SLOT_LEVERS, DesiredState, SlotDesire
from stallward.agent.group_names import meant_by, names_in
from stallward.agent.sample import Sample
from stallward.agent.threads import ThreadDesire

Aside = tuple[tuple[str, float], ...]
"""The levers that the guard steps aside from, and until when (CLOCK_MONOTONIC, seconds)."""

_SLOT_FIELDS: Final = {
    kind: tuple(name for name, other in SLOT_LEVERS.items() if kind in other.names)
    for lever in SLOT_LEVERS.values()
    for kind in lever.names
}
_TUNING_FIELDS: Final = {
    "vm.swappiness": ("swappiness",),
    "vm.overcommit_memory": ("overcommit_memory",),
    "vm.dirty_background_ratio": ("dirty_background_ratio",),
    "vm.dirty_background_bytes": ("dirty_background_ratio",),
    "vm.dirty_ratio": ("dirty_ratio",),
    "vm.dirty_bytes": ("dirty_ratio",),
    # The swappiness of one group, which both settings write.
    "swappiness": ("swappiness", "protected_swappiness"),
}
_NODE_FIELDS: Final[dict[str, dict[str, Any]]] = {
    "oom": {"protect_from_oom": False},
    "memory_low": {"protected_low_bytes": None},
    "memory_min": {"protected_low_bytes": None},
}
_THREAD_FIELDS: Final[dict[str, dict[str, Any]]] = {
    "thread_slice": {"slice_us": None},
    "thread_nice": {"nice": None},
    "thread_cpus": {"cpus": ()},
}
_DEFAULT: Final = SlotDesire()


def update_aside(aside: Aside, sample: Sample, wait_s: float) -> Aside:
    """Add the levers that ``sample`` reports as foreign, and drop those whose time is over.

    Args:
        aside: The levers of the tick before.
        sample: This tick's sample.
        wait_s: How long to step aside after the last report.
    """
    if not aside and not any(state.foreign for state in sample.levers):
        return ()
    # A sample without a time neither ends nor prolongs anything.
    timed = math.isfinite(sample.time_s)
    until = {name: end_s for name, end_s in aside if not timed or end_s > sample.time_s}
    end_s = sample.time_s + wait_s if timed else 0.0
    for state in sample.levers:
        if state.foreign:
            until[state.lever] = max(until.get(state.lever, 0.0), end_s)
    return tuple(sorted(until.items()))


def step_aside(
    desired: DesiredState, aside: Aside, sample: Sample
) -> tuple[DesiredState, tuple[GuardChange, ...]]:
    """Remove the settings of the levers in ``aside``; returns the rest and a change for each."""
    slots = [group.name for group in sample.slots]
    desired = without_levers(desired, aside, slots, names_in(sample))
    changes = tuple(
        GuardChange(rule=GuardRule.SET_BY_OTHERS, wish=Wish.LEVER, lever=lever)
        for lever, _ in aside
    )
    return desired, changes


def without_levers(
    desired: DesiredState, aside: Aside, slots: Sequence[str], every: Sequence[str]
) -> DesiredState:
    """Remove the settings of the levers in ``aside``.

    Args:
        desired: A desired state.
        aside: The levers.
        slots: The name of the group of each of its slots.
        every: The names of all groups of the node.
    """
    for lever, _ in aside:
        desired = _without(desired, lever, slots, every)
    return desired


def foreign_pauses(aside: Aside, sample: Sample) -> frozenset[int]:
    """The slots whose freezer another program has changed.

    If it thawed a slot, the slot's processes must not be stopped instead.
    """
    subjects = [lever.partition(":")[2] for lever, _ in aside if lever.startswith("pause:")]
    names = names_in(sample)
    meant = frozenset[str]().union(*(meant_by(subject, names) for subject in subjects))
    return frozenset(i for i, group in enumerate(sample.slots) if group.name in meant)


def _without(
    desired: DesiredState, lever: str, slots: Sequence[str], every: Sequence[str]
) -> DesiredState:
    kind, _, subject = lever.partition(":")
    if kind == "stop":
        kept = tuple(ref for ref in desired.stopped if str(ref.pid) != subject)
        return replace(desired, stopped=kept)
    if kind in _SLOT_FIELDS:
        meant = meant_by(subject, every)
        return _without_slots(desired, _SLOT_FIELDS[kind], [name in meant for name in slots])
    if kind in _TUNING_FIELDS:
        cleared: dict[str, Any] = dict.fromkeys(_TUNING_FIELDS[kind])
        return replace(desired, tuning=replace(desired.tuning, **cleared))
    if kind in _THREAD_FIELDS:
        without = (replace(one, **_THREAD_FIELDS[kind]) for one in desired.protected_threads)
        kept_threads = tuple(one for one in without if one != ThreadDesire(thread=one.thread))
        return replace(desired, protected_threads=kept_threads)
    if lever == "oom" or (kind != "oom" and kind in _NODE_FIELDS):
        return replace(desired, **_NODE_FIELDS[kind])
    return desired  # a desired state has no field for it (one process's OOM score)


def _without_slots(
    desired: DesiredState, fields: tuple[str, ...], meant: Sequence[bool]
) -> DesiredState:
    original = {field: getattr(_DEFAULT, field) for field in fields}
    slots = tuple(
        replace(slot, **original) if index < len(meant) and meant[index] else slot
        for index, slot in enumerate(desired.slots)
    )
    return replace(desired, slots=slots)
