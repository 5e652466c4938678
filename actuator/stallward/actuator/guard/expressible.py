"""Checks whether a desired state or a decision can be expressed on a node at all. Pure.

A state that fails is refused as a whole. It does not merely go too far but contains a mistake: a
NaN, a number that no kernel file takes, or a value that the tick record cannot hold.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final, get_args

from stallward.actuator.guard.problem import Expected, Flaw, Problem
from stallward.agent.controller import Decision
from stallward.agent.desired import (
    MAX_LIMIT_BYTES,
    MAX_SWAPPINESS,
    SLOT_LEVERS,
    DesiredState,
    ProcessRef,
    SlotDesire,
    Tuning,
)
from stallward.agent.file_pages import (
    GRAB_PAGES,
    HARMLESS_FILE_ACTIONS,
    FileAction,
    FilePages,
    FileScope,
    Victim,
)
from stallward.agent.threads import ThreadDesire, ThreadRef

MAX_CPUS: Final = 8192
"""The largest number of CPUs that a Linux kernel is built for."""
MAX_REFS: Final = 4096
"""The largest number of processes in one desired state."""
MAX_THREADS: Final = 1024
"""The largest number of threads in one desired state."""
SLICE_US: Final = (100, 100_000)
"""The timeslices that Linux takes (``__setparam_fair``)."""
_MAX_CORES: Final = 65536.0
_MAX_PID: Final = 1 << 22
"""PID_MAX_LIMIT of 64-bit kernels."""
_MAX_ACTION: Final = (1 << 32) - 1
_MAX_NAME: Final = 100
_ADVICE: Final = (None, "cold", "pageout", "willneed")
_DEFAULT: Final = SlotDesire()

_SLOT_INTEGERS: Final = tuple(
    (name, *lever.bounds) for name, lever in SLOT_LEVERS.items() if lever.bounds is not None
)
_TUNING_INTEGERS: Final = (
    ("swappiness", 0, MAX_SWAPPINESS),
    ("protected_swappiness", 0, MAX_SWAPPINESS),
    ("overcommit_memory", 0, 2),
)


def inexpressible(desired: object, slots: int) -> Problem | None:
    """Why ``desired`` cannot be expressed on a node with ``slots`` slots; ``None`` if it can."""
    return next(_state_problems(desired, slots), None)


def unusable(decision: object, slots: int) -> Problem | None:
    """Why a controller's decision cannot be used or recorded; ``None`` if it can."""
    return next(_decision_problems(decision, slots), None)


Problems = Iterator[Problem]
"""Problems in the order of the checks. The first one counts: later checks rely on earlier ones."""


def _decision_problems(decision: object, slots: int) -> Problems:
    if not isinstance(decision, Decision):
        yield _wrong_type("decision", decision, Expected.DECISION)
        return
    yield from _state_problems(decision.desired, slots)
    action = () if decision.action is None else decision.action
    if not isinstance(action, tuple):
        yield _wrong_type("action", action, Expected.TUPLE)
    for value in action:
        yield from _integer("action", value, 0, _MAX_ACTION)
        if value is None:
            yield Problem(flaw=Flaw.EMPTY_ENTRY, field="action")
    yield from _number("propensity", decision.propensity, 1.0)
    yield from _number("score", decision.score, math.inf)
    if not isinstance(decision.reason, str):
        yield _wrong_type("reason", decision.reason, Expected.TEXT)


def _state_problems(desired: object, slots: int) -> Problems:
    if not isinstance(desired, DesiredState):
        yield _wrong_type("desired", desired, Expected.DESIRED_STATE)
        return
    if not isinstance(desired.slots, tuple):
        yield _wrong_type("slots", desired.slots, Expected.TUPLE)
    if len(desired.slots) > slots:
        yield Problem(
            flaw=Flaw.TOO_MANY_SLOTS,
            field="slots",
            value=f"{len(desired.slots)}",
            high=float(slots),
        )
    for index, slot in enumerate(desired.slots):
        for problem in _slot_problems(slot):
            yield replace(problem, slot=index)
    yield from _tuning_problems(desired.tuning)
    yield from _process_problems(desired)
    yield from _thread_problems(desired.protected_threads)
    yield from _integer("protected_low_bytes", desired.protected_low_bytes, 0, MAX_LIMIT_BYTES)
    yield from _flag("protect_from_oom", desired.protect_from_oom)
    yield from _flag("protected_willneed", desired.protected_willneed)
    yield from _flag("kill_at_once", desired.kill_at_once)
    yield from _file_pages_problems(desired.file_pages)


def _wrong_type(
    field: str, value: object, expected: Expected, high: float | None = None
) -> Problem:
    """The problem of a wrong type, reported by the name of the type."""
    return Problem(
        flaw=Flaw.WRONG_TYPE,
        field=field,
        value=type(value).__name__,
        expected=expected,
        high=high,
    )


def _wrong_value(field: str, value: object, expected: Expected) -> Problem:
    """The problem of a wrong type, reported by the value."""
    return Problem(flaw=Flaw.WRONG_TYPE, field=field, value=repr(value), expected=expected)


def _outside(field: str, value: float, low: float, high: float) -> Problem:
    return Problem(
        flaw=Flaw.OUT_OF_RANGE, field=field, value=f"{value}", low=float(low), high=float(high)
    )


def _integer(name: str, value: Any, low: int, high: int) -> Problems:
    if value is None:
        return
    if type(value) is not int:  # Python counts bool as int, but a truth value is no number
        yield _wrong_value(name, value, Expected.INTEGER)
    elif not low <= value <= high:
        yield _outside(name, value, low, high)


def _number(name: str, value: Any, high: float) -> Problems:
    if value is None:
        return
    if type(value) is bool or not isinstance(value, (int, float)):
        yield _wrong_value(name, value, Expected.NUMBER)
    elif not math.isfinite(value):
        yield Problem(flaw=Flaw.NOT_FINITE, field=name, value=f"{value}")
    elif not 0 <= value <= high:
        yield _outside(name, value, 0, high)


def _flag(name: str, value: Any) -> Problems:
    if type(value) is not bool:
        yield _wrong_value(name, value, Expected.FLAG)


def _slot_problems(slot: Any) -> Problems:
    if not isinstance(slot, SlotDesire):
        yield _wrong_type("slots", slot, Expected.SLOT_DESIRE)
        return
    yield from _flag("paused", slot.paused)
    if slot == _DEFAULT:
        return
    for name, low, high in _SLOT_INTEGERS:
        yield from _integer(name, getattr(slot, name), low, high)
    yield from _number("cpu_max_cores", slot.cpu_max_cores, _MAX_CORES)
    if slot.cpu_max_cores == 0:
        yield Problem(flaw=Flaw.OUT_OF_RANGE, field="cpu_max_cores", value="0")
    yield from _cpu_problems(slot.cpus)
    if slot.page_advice not in _ADVICE:
        yield _wrong_value("page_advice", slot.page_advice, Expected.PAGE_ADVICE)
    yield from _flag("terminated", slot.terminated)


def _file_pages_problems(wish: Any) -> Problems:
    if wish is None:
        return
    if not isinstance(wish, FilePages):
        yield _wrong_type("file_pages", wish, Expected.FILE_PAGES)
        return
    for name, words in (("action", FileAction), ("victim", Victim), ("scope", FileScope)):
        value = getattr(wish, name)
        if value not in get_args(words):
            yield _wrong_value(f"file_pages.{name}", value, Expected.FILE_PAGES)
    if type(wish.grab_pages) is not int or wish.grab_pages not in GRAB_PAGES:
        yield _wrong_value("file_pages.grab_pages", wish.grab_pages, Expected.FILE_PAGES)
    yield from _flag("file_pages.writeback", wish.writeback)
    if wish.victim == "protected" and wish.action not in HARMLESS_FILE_ACTIONS:
        # The application's pages are never taken, whoever wants it.
        value = f"{wish.action} of the protected application"
        yield Problem(
            flaw=Flaw.WRONG_TYPE, field="file_pages", value=value, expected=Expected.FILE_PAGES
        )


def _cpu_problems(cpus: Any) -> Problems:
    if not isinstance(cpus, tuple) or len(cpus) > MAX_CPUS:
        yield _wrong_type("cpus", cpus, Expected.CPU_LIST, float(MAX_CPUS))
    for cpu in cpus:
        yield from _integer("cpus", cpu, 0, MAX_CPUS - 1)
        if cpu is None:
            yield Problem(flaw=Flaw.EMPTY_ENTRY, field="cpus")


def _thread_problems(desires: Any) -> Problems:
    if not isinstance(desires, tuple) or len(desires) > MAX_THREADS:
        yield _wrong_type("protected_threads", desires, Expected.THREAD_LIST, float(MAX_THREADS))
    for desire in desires:
        ref = desire.thread if isinstance(desire, ThreadDesire) else None
        if not isinstance(ref, ThreadRef) or None in {ref.tid, ref.start_time_ticks}:
            yield _wrong_value("protected_threads", desire, Expected.THREAD)
            return
        yield from _integer("tid", ref.tid, 1, _MAX_PID)
        yield from _integer("start_time_ticks", ref.start_time_ticks, 0, MAX_LIMIT_BYTES)
        yield from _integer("slice_us", desire.slice_us, *SLICE_US)
        yield from _integer("nice", desire.nice, -20, 19)
        yield from _cpu_problems(desire.cpus)


def _tuning_problems(tuning: Any) -> Problems:
    if not isinstance(tuning, Tuning):
        yield _wrong_type("tuning", tuning, Expected.TUNING)
        return
    name = tuning.name
    if not isinstance(name, str) or len(name) > _MAX_NAME or not name.isprintable():
        yield _wrong_type("name", name, Expected.SHORT_TEXT)
    for field, low, high in _TUNING_INTEGERS:
        yield from _integer(field, getattr(tuning, field), low, high)
    yield from _number("dirty_background_ratio", tuning.dirty_background_ratio, 100)
    yield from _number("dirty_ratio", tuning.dirty_ratio, 100)


def _process_problems(desired: DesiredState) -> Problems:
    if not isinstance(desired.stopped, tuple) or len(desired.stopped) > MAX_REFS:
        yield _wrong_type("stopped", desired.stopped, Expected.PROCESS_LIST, float(MAX_REFS))
    refs = desired.stopped if desired.terminate is None else (*desired.stopped, desired.terminate)
    for ref in refs:
        if not isinstance(ref, ProcessRef) or None in {ref.pid, ref.start_time_ticks}:
            yield _wrong_value("stopped", ref, Expected.PROCESS)
            return
        yield from _integer("pid", ref.pid, 1, _MAX_PID)
        yield from _integer("start_time_ticks", ref.start_time_ticks, 0, MAX_LIMIT_BYTES)
