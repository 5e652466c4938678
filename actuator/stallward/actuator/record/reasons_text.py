"""Makes the sentences about faults and about the guard from their values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, assert_never

from stallward.actuator.guard.changes import GuardChange, GuardRule, Unit, Wish
from stallward.actuator.record.problem_text import UNKNOWN, problem_text
from stallward.actuator.record.reasons import (
    Cause,
    ControllerRaised,
    DecisionLate,
    DecisionUnfit,
    Fault,
    FaultKind,
    FeatureNotFinite,
    NoDetails,
    NoSample,
    NotObservable,
    OutsideTraining,
    Reasons,
    SampleTooOld,
    SignalLost,
    TimeNotFinite,
    TimeStoodStill,
    TotalWentBack,
    Waiting,
    WrongSlots,
)
from stallward.agent.desired import MIB


def reason_notes(reasons: Reasons, names: Sequence[str] = ()) -> tuple[str, ...]:
    """Return a note for each fault and each change of a tick.

    Args:
        reasons: The faults and changes.
        names: The slots' names; by default the names of their groups.
    """
    notes = []
    if reasons.fault is not None:
        text = fault_text(reasons.fault, names)
        notes.append(f"fallback, {kind_text(reasons.fault.kind)}: {text}")
    if reasons.default_fault is not None:
        notes.append(f"default {fault_text(reasons.default_fault, names)}")
    if reasons.watched_fault is not None:
        notes.append(f"watched {fault_text(reasons.watched_fault, names)}")
    notes.extend(change_text(change, names) for change in reasons.changes)
    if reasons.changes_left_out:
        notes.append(f"and {reasons.changes_left_out} more notes")
    return tuple(notes)


def kind_text(kind: FaultKind) -> str:
    """Return the kind of a fault in words, e.g. ``decision late``."""
    return kind.value.replace("_", " ")


def fault_text(fault: Fault, names: Sequence[str] = ()) -> str:
    """Return which controller was at fault, and the cause; see :func:`reason_notes`."""
    return f"{fault.controller}: {cause_text(fault.cause, names)}"


def cause_text(  # noqa: PLR0911, PLR0912 - one sentence for each cause
    cause: Cause, names: Sequence[str] = ()
) -> str:
    """Return the cause of a fault in words."""
    match cause:
        case TimeStoodStill():
            return "its time did not advance"
        case SampleTooOld():
            return f"{cause.age_s:.2f} s old, at most {cause.limit_s:g} s"
        case WrongSlots():
            return f"{cause.slots} slots and {cause.states} states, not {cause.expected}"
        case TimeNotFinite():
            return f"its time is {cause.time_s}"
        case TotalWentBack():
            return f"{cause.signal} went back"
        case NoSample():
            return f"none could be read for {cause.ticks} ticks"
        case SignalLost():
            return f"{cause.signal} was there and is gone"
        case FeatureNotFinite():
            return cause.feature
        case NotObservable() | ControllerRaised():
            return cause.error
        case DecisionUnfit():
            return problem_text(cause.problem, names)
        case DecisionLate():
            return f"{cause.took_s * 1e3:.0f} ms"
        case OutsideTraining():
            return _outside_training_text(cause)
        case Waiting():
            return f"{cause.good_ticks} of {cause.needed_ticks} good ticks since its last fault"
        case NoDetails():
            return "no details were recorded"
        case _:
            assert_never(cause)


def _outside_training_text(cause: OutsideTraining) -> str:
    if cause.score is None or not math.isfinite(cause.limit):
        return f"score {cause.score}, limit {cause.limit}: they cannot be compared"
    return f"score {cause.score:.3f} above {cause.limit:g}"


# ---------- The guard


def change_text(change: GuardChange, names: Sequence[str] = ()) -> str:
    """Return what the guard did not grant in full, and why; see :func:`reason_notes`."""
    text, wish = _BY_WISH.get(change.wish, _refusal)(change), change.wish
    if wish in {Wish.LEVER, Wish.PROTECTED_LOW}:
        return text if wish is Wish.LEVER else f"protected group: {text}"
    if wish is Wish.FILE_PAGES:
        return f"file pages: {text}"
    if wish is Wish.THREADS:
        whose = "threads" if change.tid is None else f"thread {change.tid}"
        return f"{whose} of the protected group: {text}"
    if change.pid is not None:
        return f"pid {change.pid}: {text}"
    if change.slot is not None and change.slot < len(names):
        return f"{names[change.slot]}: {text}"
    return f"{change.group}: {text}"


def _refusal(change: GuardChange) -> str:
    """Return why the guard refused, for a rule that may apply to any part of a desired state."""
    template = _BY_RULE.get(change.rule)
    return UNKNOWN if template is None else template.format_map(_numbers(change))


def _numbers(change: GuardChange) -> dict[str, float | int | str]:
    """Return the values of a change for its sentence; a NaN stands for a missing number."""
    found = math.nan if change.found is None else change.found
    bound = math.nan if change.bound is None else change.bound
    return {
        "found": found,
        "bound": bound,
        "mib": bound / MIB,
        "protected_pid": str(change.protected_pid),
        "lever": change.lever,
    }


_BY_RULE: Final = {
    GuardRule.MAX_PAUSE: "paused {found:.1f} s of at most {bound:g} s",
    GuardRule.PAUSE_SHARE: "paused {found:.0%} of the last minute, at most {bound:.0%}",
    GuardRule.POD_PAUSE: "paused {found:.1f} s, and its work tolerates {bound:g} s",
    GuardRule.MIN_RUN: "thawed {found:.2f} s ago, runs at least {bound:g} s",
    GuardRule.PROTECTED_PROCESS: "left alone, process {protected_pid} in it is protected",
    GuardRule.NOT_IN_SAMPLE: "not in the sample",
    GuardRule.NOT_BACKGROUND: "not a background process",
    GuardRule.NOT_ALLOWED: "the configuration does not allow it",
    GuardRule.SET_BY_OTHERS: "left to another program",
    GuardRule.NO_PRESSURE: (
        "no sign of memory pressure for {found:.0f} s, and without one only {bound:g} s of an hour"
    ),
    GuardRule.NOT_A_THREAD: "left alone, not a thread of it in the sample",
    GuardRule.NO_CPU_ONLINE: "kept on its own CPUs, none of those wanted is among them",
    GuardRule.THREAD_STEPS: "nice value kept near its own, at {bound:g}",
    GuardRule.TOTAL_SHARE: (
        "nice values left alone, their weights add up to {found:g}, and its own to {bound:g}"
    ),
    GuardRule.THREAD_STARVED: (
        "all put back, it was ready and has not run for {found:.1f} s, at most {bound:g} s"
    ),
}
_SLOT_RULES: Final = frozenset(
    {
        GuardRule.MAX_PAUSE,
        GuardRule.PAUSE_SHARE,
        GuardRule.POD_PAUSE,
        GuardRule.MIN_RUN,
        GuardRule.PROTECTED_PROCESS,
        GuardRule.NOT_IN_SAMPLE,
        GuardRule.SET_BY_OTHERS,
    }
)


def _stop(change: GuardChange) -> str:
    subject = "its slot was " if change.rule in _SLOT_RULES else ""
    return f"not stopped, {subject}{_refusal(change)}"


_LIMITS: Final = {
    GuardRule.FLOOR: "{name} raised to its floor, {mib:.3g} MiB",
    GuardRule.LOWEST_WORKABLE: "{name} raised to {mib:.0f} MiB, the least it can work with",
    GuardRule.ONE_LEVEL: "{name} tightened one level only, to {mib:.0f} MiB",
    GuardRule.ABOVE_USAGE: "{name} kept at {mib:.0f} MiB, above what it holds",
    GuardRule.ABOVE_LIMIT: "{name} raised to {mib:.0f} MiB, above the limit",
    GuardRule.HARD_ALONE: "no {name} without a limit, since it could only kill",
    GuardRule.NO_TIME: "no {name} on a sample without a time",
    GuardRule.USAGE_UNKNOWN: "no {name}: what it holds is not known",
    GuardRule.DEMAND_UNKNOWN: "no {name}: it has held nothing yet, so what it wants is not known",
}


def _limit(name: str) -> Callable[[GuardChange], str]:
    def describe(change: GuardChange) -> str:
        template = _LIMITS.get(change.rule, f"no {{name}}: {UNKNOWN}")
        return template.format_map({"name": name, **_numbers(change)})

    return describe


def _reclaim(change: GuardChange) -> str:
    if change.bound is None:
        return "not reclaimed: what it holds or wants is not known"
    return f"reclaimed to {change.bound / MIB:.0f} MiB only"


def _minimum(name: str) -> Callable[[GuardChange], str]:
    def describe(change: GuardChange) -> str:
        granted = math.nan if change.bound is None else change.bound
        unit = "as no slot goes first" if change.unit is Unit.NICE else change.unit.value
        return f"{name} raised to {granted:g} {unit}".rstrip()

    return describe


def _cpus(change: GuardChange) -> str:
    if change.rule is GuardRule.NO_CPU_ONLINE:
        return "kept on its own CPUs, none of those wanted is known to be online"
    return f"{_numbers(change)['found']:.0f} CPUs that are not online left out"


def _guarantee(change: GuardChange) -> str:
    if change.bound is None:
        return "no guarantee, the zone's memory is not known"
    return f"guarantee cut to the zone's memory, {change.bound / MIB:.0f} MiB"


_BY_WISH: Final[dict[Wish, Callable[[GuardChange], str]]] = {
    Wish.PAUSE: lambda change: f"not paused, {_refusal(change)}",
    Wish.STOP: _stop,
    Wish.TERMINATE: lambda change: f"not terminated, {_refusal(change)}",
    Wish.LIMIT: _limit("limit"),
    Wish.HARD_LIMIT: _limit("hard limit"),
    Wish.HOLD: lambda change: f"not held back, {_refusal(change)}",
    Wish.MEMORY: lambda change: (
        f"not limited: under a limit the kernel killed in it {_numbers(change)['found']:.0f} s ago"
    ),
    Wish.SWAP_MAX: lambda _: "no swap limit beside a hard limit: the kernel could only kill",
    Wish.RECLAIM: _reclaim,
    Wish.CPU_MAX: _minimum("CPU limit"),
    Wish.IO_MAX: _minimum("disk limit"),
    Wish.NICE: _minimum("nice"),
    Wish.CPUS: _cpus,
    Wish.PAGE_ADVICE: lambda _: "pages advised cold only, it is running",
    Wish.FILE_PAGES: lambda _: "cold only, the background is running",
    Wish.PROTECTED_LOW: _guarantee,
    Wish.LEVER: lambda change: f"stepped aside from {change.lever}: another program has set it",
}
