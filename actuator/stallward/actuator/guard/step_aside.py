"""Stepping aside: what somebody else has set is not wished for any more. Pure.

A lever reports itself ``foreign`` in the sample when it finds another value than it wrote. The
guard then takes the wish out of what it grants, for as long as the report stands and a while
after it (the lever forgets when nothing is wished any more), so that the daemon never fights
with whoever changed it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Final

from stallward.actuator.guard.changes import GuardChange, GuardRule, Wish
from stallward.agent.desired import DesiredState, SlotDesire
from stallward.agent.sample import GroupSample, Sample

Aside = tuple[tuple[str, float], ...]
"""Levers left to somebody else, and until when (CLOCK_MONOTONIC, seconds)."""

_SLOT_FIELDS: Final = {
    "pause": "paused",
    "limit": "limit_bytes",
    "hard_limit": "hard_limit_bytes",
    "swap_max": "swap_max_bytes",
    "reclaim": "reclaim_to_bytes",
    "cpu_weight": "cpu_weight",
    "cpu_max": "cpu_max_cores",
    "io_weight": "io_weight",
    "io_max": "io_max_bytes_per_s",
    "nice": "nice",
    "cpus": "cpus",
    "pages": "page_advice",
}
_TUNING_FIELDS: Final = {
    "vm.swappiness": ("swappiness",),
    "vm.overcommit_memory": ("overcommit_memory",),
    "vm.dirty_background_ratio": ("dirty_background_ratio",),
    "vm.dirty_background_bytes": ("dirty_background_ratio",),
    "vm.dirty_ratio": ("dirty_ratio",),
    "vm.dirty_bytes": ("dirty_ratio",),
    # One group's own swappiness: written by both settings.
    "swappiness": ("swappiness", "protected_swappiness"),
}
_NODE_FIELDS: Final[dict[str, dict[str, Any]]] = {
    "oom": {"protect_from_oom": False},
    "memory_low": {"protected_low_bytes": None},
}
_DEFAULT: Final = SlotDesire()


def remember(aside: Aside, sample: Sample, wait_s: float) -> Aside:
    """The levers to keep away from, as of ``sample``, until ``wait_s`` after their last report."""
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
    """``desired`` without what belongs to somebody else now, and one change a lever."""
    for lever, _ in aside:
        desired = _without(desired, lever, sample)
    changes = tuple(
        GuardChange(rule=GuardRule.SET_BY_OTHERS, wish=Wish.LEVER, lever=lever)
        for lever, _ in aside
    )
    return desired, changes


def pauses_left(aside: Aside, sample: Sample) -> frozenset[int]:
    """The slots whose pause is somebody else's: what they thawed is not stopped instead."""
    subjects = {lever.partition(":")[2] for lever, _ in aside if lever.startswith("pause:")}
    return frozenset(i for i, group in enumerate(sample.slots) if _called(group) & subjects)


def _called(group: GroupSample) -> set[str]:
    return {group.name, group.name.rpartition("/")[2]}


def _without(desired: DesiredState, lever: str, sample: Sample) -> DesiredState:
    kind, _, subject = lever.partition(":")
    if kind == "stop":
        kept = tuple(ref for ref in desired.stopped if str(ref.pid) != subject)
        return replace(desired, stopped=kept)
    if kind in _SLOT_FIELDS:
        return _without_slot(desired, _SLOT_FIELDS[kind], subject, sample)
    if kind in _TUNING_FIELDS:
        cleared: dict[str, Any] = dict.fromkeys(_TUNING_FIELDS[kind])
        return replace(desired, tuning=replace(desired.tuning, **cleared))
    if lever == "oom" or (kind != "oom" and kind in _NODE_FIELDS):
        return replace(desired, **_NODE_FIELDS[kind])
    return desired  # finer than a desired state can say (one process's OOM score): the lever's


def _without_slot(desired: DesiredState, field: str, subject: str, sample: Sample) -> DesiredState:
    slots = list(desired.slots)
    for index, group in enumerate(sample.slots[: len(slots)]):
        if subject in _called(group):
            slots[index] = replace(slots[index], **{field: getattr(_DEFAULT, field)})
    return replace(desired, slots=tuple(slots))
