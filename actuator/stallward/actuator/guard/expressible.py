"""Whether a desired state can be expressed at all, on any node. Pure.

What fails here is refused as a whole: it is not a matter of how far a controller may go, but a
mistake (a NaN, a number that no kernel file takes, a value that the tick record cannot hold).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

from stallward.agent.controller import Decision
from stallward.agent.desired import DesiredState, ProcessRef, SlotDesire, Tuning

MAX_SWAPPINESS: Final = 200
NOT_FINITE: Final = "not finite"
"""In every message about a NaN or an infinity."""
MAX_LIMIT_BYTES: Final = 1 << 62
MAX_CPUS: Final = 8192
"""The most a Linux kernel is built for."""
MAX_REFS: Final = 4096
"""Processes named in one desired state."""
_MAX_CORES: Final = 65536.0
_MAX_PID: Final = 1 << 22
"""PID_MAX_LIMIT of 64-bit kernels."""
_MAX_ACTION: Final = (1 << 32) - 1
_MAX_NAME: Final = 100
_ADVICE: Final = (None, "cold", "pageout", "willneed")
_DEFAULT: Final = SlotDesire()

_SLOT_INTEGERS: Final = (
    ("limit_bytes", 1, MAX_LIMIT_BYTES),
    ("hard_limit_bytes", 1, MAX_LIMIT_BYTES),
    ("swap_max_bytes", 0, MAX_LIMIT_BYTES),
    ("reclaim_to_bytes", 0, MAX_LIMIT_BYTES),
    ("cpu_weight", 1, 10_000),
    ("io_weight", 1, 10_000),
    ("io_max_bytes_per_s", 1, MAX_LIMIT_BYTES),
    ("nice", -20, 19),
)
_TUNING_INTEGERS: Final = (
    ("swappiness", 0, MAX_SWAPPINESS),
    ("protected_swappiness", 0, MAX_SWAPPINESS),
    ("overcommit_memory", 0, 2),
)


def inexpressible(desired: object, slots: int) -> str:
    """Why ``desired`` cannot be expressed on a node of ``slots`` slots; empty if it can."""
    return next(_of_state(desired, slots), "")


def unusable(decision: object, slots: int) -> str:
    """Why a controller's decision cannot be used or recorded; empty if it can."""
    return next(_of_decision(decision, slots), "")


Problems = Iterator[str]
"""What is wrong, the first first; later checks rely on earlier ones."""


def _of_decision(decision: object, slots: int) -> Problems:
    if not isinstance(decision, Decision):
        yield f"a {type(decision).__name__} is no decision"
        return
    yield from _of_state(decision.desired, slots)
    action = () if decision.action is None else decision.action
    if not isinstance(action, tuple):
        yield f"action is a {type(action).__name__}, not a tuple"
    for value in action:
        yield from _integer("action", value, 0, _MAX_ACTION)
        if value is None:
            yield "action holds None"
    yield from _number("propensity", decision.propensity, 1.0)
    yield from _number("score", decision.score, math.inf)
    if not isinstance(decision.reason, str):
        yield "reason is not a text"


def _of_state(desired: object, slots: int) -> Problems:
    if not isinstance(desired, DesiredState):
        yield f"a {type(desired).__name__} is no desired state"
        return
    if not isinstance(desired.slots, tuple):
        yield f"slots is a {type(desired.slots).__name__}, not a tuple"
    if len(desired.slots) > slots:
        yield f"{len(desired.slots)} slots desired, the node has {slots}"
    for index, slot in enumerate(desired.slots):
        for problem in _of_slot(slot):
            yield f"{problem} (slot {index})"
    yield from _of_tuning(desired.tuning)
    yield from _of_processes(desired)
    yield from _integer("protected_low_bytes", desired.protected_low_bytes, 0, MAX_LIMIT_BYTES)
    yield from _flag("protect_from_oom", desired.protect_from_oom)
    yield from _flag("protected_willneed", desired.protected_willneed)


def _integer(name: str, value: Any, low: int, high: int) -> Problems:
    if value is None:
        return
    if type(value) is not int:  # bool is an int to Python and no number to anybody else
        yield f"{name} is {value!r}, not an integer"
    elif not low <= value <= high:
        yield f"{name} is {value}, outside {low}..{high}"


def _number(name: str, value: Any, high: float) -> Problems:
    if value is None:
        return
    if type(value) is bool or not isinstance(value, (int, float)):
        yield f"{name} is {value!r}, not a number"
    elif not math.isfinite(value):
        yield f"{name} is {value}, {NOT_FINITE}"
    elif not 0 <= value <= high:
        yield f"{name} is {value}, outside 0..{high:g}"


def _flag(name: str, value: Any) -> Problems:
    if type(value) is not bool:
        yield f"{name} is {value!r}, not true or false"


def _of_slot(slot: Any) -> Problems:
    if not isinstance(slot, SlotDesire):
        yield f"a {type(slot).__name__} is no desire for a slot"
        return
    yield from _flag("paused", slot.paused)
    if slot == _DEFAULT:
        return
    for name, low, high in _SLOT_INTEGERS:
        yield from _integer(name, getattr(slot, name), low, high)
    yield from _number("cpu_max_cores", slot.cpu_max_cores, _MAX_CORES)
    if slot.cpu_max_cores == 0:
        yield "cpu_max_cores is 0"
    if not isinstance(slot.cpus, tuple) or len(slot.cpus) > MAX_CPUS:
        yield f"cpus is no tuple of at most {MAX_CPUS}"
    for cpu in slot.cpus:
        yield from _integer("cpus", cpu, 0, MAX_CPUS - 1)
        if cpu is None:
            yield "cpus holds None"
    if slot.page_advice not in _ADVICE:
        yield f"page_advice is {slot.page_advice!r}"
    yield from _flag("terminated", slot.terminated)


def _of_tuning(tuning: Any) -> Problems:
    if not isinstance(tuning, Tuning):
        yield f"a {type(tuning).__name__} is no tuning"
        return
    name = tuning.name
    if not isinstance(name, str) or len(name) > _MAX_NAME or not name.isprintable():
        yield "the tuning's name is not a short printable text"
    for field, low, high in _TUNING_INTEGERS:
        yield from _integer(field, getattr(tuning, field), low, high)
    yield from _number("dirty_background_ratio", tuning.dirty_background_ratio, 100)
    yield from _number("dirty_ratio", tuning.dirty_ratio, 100)


def _of_processes(desired: DesiredState) -> Problems:
    if not isinstance(desired.stopped, tuple) or len(desired.stopped) > MAX_REFS:
        yield f"stopped is no tuple of at most {MAX_REFS} processes"
    refs = desired.stopped if desired.terminate is None else (*desired.stopped, desired.terminate)
    for ref in refs:
        if not isinstance(ref, ProcessRef) or None in {ref.pid, ref.start_time_ticks}:
            yield f"{ref!r} is no process"
            return
        yield from _integer("pid", ref.pid, 1, _MAX_PID)
        yield from _integer("start_time_ticks", ref.start_time_ticks, 0, MAX_LIMIT_BYTES)
