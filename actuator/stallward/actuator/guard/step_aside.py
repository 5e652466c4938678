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
    desired = without_levers(desired, aside, [group.name for group in sample.slots])
    changes = tuple(
        GuardChange(rule=GuardRule.SET_BY_OTHERS, wish=Wish.LEVER, lever=lever)
        for lever, _ in aside
    )
    return desired, changes


def without_levers(desired: DesiredState, aside: Aside, names: Sequence[str]) -> DesiredState:
    """Remove the settings of the levers in ``aside``.

    Args:
        desired: A desired state.
        aside: The levers.
        names: The name of the group of each of its slots.
    """
    for lever, _ in aside:
        desired = _without(desired, lever, names)
    return desired


def foreign_pauses(aside: Aside, sample: Sample) -> frozenset[int]:
    """The slots whose freezer another program has changed.

    If it thawed a slot, the slot's processes must not be stopped instead.
    """
    subjects = {lever.partition(":")[2] for lever, _ in aside if lever.startswith("pause:")}
    return frozenset(i for i, group in enumerate(sample.slots) if _names(group.name) & subjects)


def _names(group: str) -> set[str]:
    """The names by which a lever may call the group."""
    return {group, group.rpartition("/")[2]}


def _without(desired: DesiredState, lever: str, names: Sequence[str]) -> DesiredState:
    kind, _, subject = lever.partition(":")
    if kind == "stop":
        kept = tuple(ref for ref in desired.stopped if str(ref.pid) != subject)
        return replace(desired, stopped=kept)
    if kind in _SLOT_FIELDS:
        return _without_slot(desired, _SLOT_FIELDS[kind], subject, names)
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


def _without_slot(
    desired: DesiredState, fields: tuple[str, ...], subject: str, names: Sequence[str]
) -> DesiredState:
    slots = list(desired.slots)
    original = {field: getattr(_DEFAULT, field) for field in fields}
    for index, name in enumerate(names[: len(slots)]):
        if subject in _names(name):
            slots[index] = replace(slots[index], **original)
    return replace(desired, slots=tuple(slots))
