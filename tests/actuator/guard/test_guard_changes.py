"""Tests of the guard's changes as values, in words, and as labels of metrics."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.guard.changes import GuardChange, GuardRule, Unit, Wish
from stallward.actuator.guard.guard import Guard, GuardMemory
from stallward.actuator.record.reasons import (
    Reasons,
)
from stallward.actuator.record.reasons_text import change_text, reason_notes
from stallward.actuator.record.wire import REASONS
from stallward.actuator.service.metrics.counts import guard_rule
from stallward.agent.desired import MIB, DesiredState, ProcessRef, SlotDesire
from stallward.agent.file_pages import FilePages
from stallward.agent.sample import (
    GroupSample,
    LeverState,
    ProcessSample,
    Sample,
    SlotState,
)
from stallward.agent.testing import make_sample

FLOOR = 16 * MIB
WANTS = 300 * MIB
RULES_OF_THREADS = (
    GuardRule.NOT_A_THREAD,
    GuardRule.THREAD_STEPS,
    GuardRule.TOTAL_SHARE,
    GuardRule.THREAD_STARVED,
)
HOG = ProcessRef(pid=100, start_time_ticks=7)


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A desired state, and the change that the guard must make to it."""

    rule: GuardRule
    says: str
    label: str | None
    wish: Wish
    slot: SlotDesire = field(default_factory=SlotDesire)
    desired: DesiredState = field(default_factory=DesiredState)
    state: SlotState = field(default_factory=lambda: SlotState(reference_bytes=WANTS))
    sample: dict[str, Any] = field(default_factory=dict)
    usage_bytes: int | None = 200 * MIB
    numbers: tuple[float | None, float | None, Unit] = (None, None, Unit.NONE)


def _levers(*names: str) -> dict[str, Any]:
    return {"levers": tuple(LeverState(lever=name, value="1", foreign=True) for name in names)}


def _process(pid: int, slot: int) -> ProcessSample:
    return ProcessSample(pid=pid, start_time_ticks=7, slot=slot, oom_score=0, stopped=False)


PAUSED = SlotState(paused=True, paused_for_s=4.95, reference_bytes=WANTS)
PAUSE = SlotDesire(paused=True)
STOP = DesiredState(stopped=(HOG,))
UNKNOWN = SlotState()
REFUSALS = (
    Refusal(
        rule=GuardRule.MAX_PAUSE, wish=Wish.PAUSE, slot=PAUSE, state=PAUSED, label="max_pause",
        says="edge/hog0: not paused, paused 5.0 s of at most 5 s",
        numbers=(4.95, 5.0, Unit.SECONDS),
    ),
    Refusal(
        rule=GuardRule.MAX_PAUSE, wish=Wish.STOP, desired=STOP, state=PAUSED, label="stop",
        says="pid 100: not stopped, its slot was paused 5.0 s of at most 5 s",
        numbers=(4.95, 5.0, Unit.SECONDS),
    ),
    Refusal(
        rule=GuardRule.POD_PAUSE, wish=Wish.PAUSE, slot=PAUSE, label="pod_pause",
        state=replace(PAUSED, paused_for_s=0.4, longest_pause_s=0.5),
        says="edge/hog0: not paused, paused 0.4 s, and its work tolerates 0.5 s",
        numbers=(0.4, 0.5, Unit.SECONDS),
    ),
    Refusal(
        rule=GuardRule.POD_PAUSE, wish=Wish.STOP, desired=STOP, label="stop",
        state=SlotState(longest_pause_s=0.0, reference_bytes=WANTS),
        says="pid 100: not stopped, its slot was paused 0.0 s, and its work tolerates 0 s",
        numbers=(0.0, 0.0, Unit.SECONDS),
    ),
    Refusal(
        rule=GuardRule.PAUSE_SHARE, wish=Wish.PAUSE, slot=PAUSE, label="pause_share",
        state=SlotState(paused_share=0.8, reference_bytes=WANTS),
        says="edge/hog0: not paused, paused 80% of the last minute, at most 80%",
        numbers=(0.8, 0.8, Unit.SHARE),
    ),
    Refusal(
        rule=GuardRule.MIN_RUN, wish=Wish.PAUSE, slot=PAUSE, label="min_run",
        state=SlotState(since_thaw_s=0.25, reference_bytes=WANTS),
        says="edge/hog0: not paused, thawed 0.25 s ago, runs at least 0.5 s",
        numbers=(0.25, 0.5, Unit.SECONDS),
    ),
    Refusal(
        rule=GuardRule.PROTECTED_PROCESS, wish=Wish.SLOT, slot=PAUSE, label=None,
        sample={"processes": (_process(1, 0),)},
        says="edge/hog0: left alone, process 1 in it is protected",
    ),
    Refusal(
        rule=GuardRule.PROTECTED_PROCESS, wish=Wish.STOP, desired=STOP, label="stop",
        sample={"processes": (_process(1, 0), _process(100, 0))},
        says="pid 100: not stopped, its slot was left alone, process 1 in it is protected",
    ),
    Refusal(
        rule=GuardRule.NOT_IN_SAMPLE, wish=Wish.STOP, desired=STOP, label="stop",
        sample={"slot_states": (SlotState(),)},
        says="pid 100: not stopped, its slot was not in the sample",
    ),
    Refusal(
        rule=GuardRule.NOT_BACKGROUND, wish=Wish.STOP, label="stop",
        desired=DesiredState(stopped=(ProcessRef(pid=7, start_time_ticks=7),)),
        says="pid 7: not stopped, not a background process",
    ),
    Refusal(
        rule=GuardRule.NOT_ALLOWED, wish=Wish.TERMINATE, desired=DesiredState(terminate=HOG),
        label="terminate", says="pid 100: not terminated, the configuration does not allow it",
    ),
    Refusal(
        rule=GuardRule.NOT_ALLOWED, wish=Wish.TERMINATE, slot=SlotDesire(terminated=True),
        label="terminate",
        says="edge/hog0: not terminated, the configuration does not allow it",
    ),
    Refusal(
        rule=GuardRule.SET_BY_OTHERS, wish=Wish.LEVER, sample=_levers("vm.swappiness"),
        label=None, says="stepped aside from vm.swappiness: another program has set it",
    ),
    Refusal(
        rule=GuardRule.DEMAND_UNKNOWN, wish=Wish.LIMIT, slot=SlotDesire(limit_bytes=FLOOR),
        state=UNKNOWN, label="limit_unknown",
        says="edge/hog0: no limit: it has held nothing yet, so what it wants is not known",
    ),
    Refusal(
        rule=GuardRule.DEMAND_UNKNOWN, wish=Wish.HARD_LIMIT, state=UNKNOWN, label=None,
        slot=SlotDesire(hard_limit_bytes=FLOOR),
        says="edge/hog0: no hard limit: it has held nothing yet, so what it wants is not known",
    ),
    Refusal(
        rule=GuardRule.DEMAND_UNKNOWN, wish=Wish.RECLAIM, state=UNKNOWN, label=None,
        slot=SlotDesire(reclaim_to_bytes=FLOOR),
        says="edge/hog0: not reclaimed: what it holds or wants is not known",
    ),
    Refusal(
        rule=GuardRule.USAGE_UNKNOWN, wish=Wish.RECLAIM, usage_bytes=None, label=None,
        slot=SlotDesire(reclaim_to_bytes=FLOOR),
        says="edge/hog0: not reclaimed: what it holds or wants is not known",
    ),
    Refusal(
        rule=GuardRule.USAGE_UNKNOWN, wish=Wish.HARD_LIMIT, usage_bytes=None, label=None,
        slot=SlotDesire(limit_bytes=260 * MIB, hard_limit_bytes=290 * MIB),
        says="edge/hog0: no hard limit: what it holds is not known",
    ),
    Refusal(
        rule=GuardRule.NO_TIME, wish=Wish.LIMIT, slot=SlotDesire(limit_bytes=FLOOR),
        sample={"time_s": math.nan}, label="limit_unknown",
        says="edge/hog0: no limit on a sample without a time",
    ),
    Refusal(
        rule=GuardRule.FLOOR, wish=Wish.LIMIT, slot=SlotDesire(paused=True, limit_bytes=1),
        label="limit_floor", says="edge/hog0: limit raised to its floor, 16 MiB",
        numbers=(None, FLOOR, Unit.BYTES),
    ),
    Refusal(
        rule=GuardRule.FLOOR, wish=Wish.RECLAIM, label="reclaim_step",
        slot=SlotDesire(paused=True, reclaim_to_bytes=1),
        says="edge/hog0: reclaimed to 16 MiB only",
        numbers=(None, FLOOR, Unit.BYTES),
    ),
    Refusal(
        rule=GuardRule.ONE_LEVEL, wish=Wish.LIMIT, slot=SlotDesire(limit_bytes=FLOOR),
        label="limit_step", says="edge/hog0: limit tightened one level only, to 240 MiB",
        numbers=(None, 240 * MIB, Unit.BYTES),
    ),
    Refusal(
        rule=GuardRule.ONE_LEVEL, wish=Wish.RECLAIM, slot=SlotDesire(reclaim_to_bytes=FLOOR),
        label="reclaim_step", says="edge/hog0: reclaimed to 180 MiB only",
        numbers=(None, 180 * MIB, Unit.BYTES),
    ),
    Refusal(
        rule=GuardRule.ABOVE_USAGE, wish=Wish.HARD_LIMIT, label="hard_limit",
        slot=SlotDesire(paused=True, limit_bytes=FLOOR, hard_limit_bytes=FLOOR),
        says="edge/hog0: hard limit kept at 216 MiB, above what it holds",
        numbers=(None, 216 * MIB, Unit.BYTES),
    ),
    Refusal(
        rule=GuardRule.ABOVE_LIMIT, wish=Wish.HARD_LIMIT, label="hard_limit",
        slot=SlotDesire(limit_bytes=280 * MIB, hard_limit_bytes=270 * MIB),
        says="edge/hog0: hard limit raised to 296 MiB, above the limit",
        numbers=(None, 296 * MIB, Unit.BYTES),
    ),
    Refusal(
        rule=GuardRule.HARD_ALONE, wish=Wish.HARD_LIMIT, label="hard_limit",
        slot=SlotDesire(hard_limit_bytes=270 * MIB),
        says="edge/hog0: no hard limit without a limit, since it could only kill",
    ),
    Refusal(
        rule=GuardRule.BESIDE_HARD_LIMIT, wish=Wish.SWAP_MAX, label=None,
        slot=SlotDesire(limit_bytes=260 * MIB, hard_limit_bytes=290 * MIB, swap_max_bytes=0),
        says="edge/hog0: no swap limit beside a hard limit: the kernel could only kill",
    ),
    Refusal(
        rule=GuardRule.MINIMUM, wish=Wish.CPU_MAX, slot=SlotDesire(cpu_max_cores=0.001),
        label="minimum", says="edge/hog0: CPU limit raised to 0.05 cores",
        numbers=(None, 0.05, Unit.CORES),
    ),
    Refusal(
        rule=GuardRule.MINIMUM, wish=Wish.IO_MAX, slot=SlotDesire(io_max_bytes_per_s=1),
        label="minimum", says="edge/hog0: disk limit raised to 65536 bytes/s",
        numbers=(None, 65536, Unit.BYTES_PER_SECOND),
    ),
    Refusal(
        rule=GuardRule.MINIMUM, wish=Wish.NICE, slot=SlotDesire(nice=-5), label="minimum",
        says="edge/hog0: nice raised to 0 as no slot goes first", numbers=(None, 0, Unit.NICE),
    ),
    Refusal(
        rule=GuardRule.CPUS_OFFLINE, wish=Wish.CPUS, slot=SlotDesire(cpus=(0, 2, 7)),
        label="cpus", says="edge/hog0: 2 CPUs that are not online left out",
        numbers=(2, None, Unit.CPUS),
    ),
    Refusal(
        rule=GuardRule.NO_CPU_ONLINE, wish=Wish.CPUS, slot=SlotDesire(cpus=(2,)), label=None,
        says="edge/hog0: kept on its own CPUs, none of those wanted is known to be online",
    ),
    Refusal(
        rule=GuardRule.STILL_RUNNING, wish=Wish.PAGE_ADVICE, label=None,
        slot=SlotDesire(page_advice="pageout"),
        says="edge/hog0: pages advised cold only, it is running",
    ),
    Refusal(
        rule=GuardRule.STILL_RUNNING, wish=Wish.FILE_PAGES, label=None,
        desired=DesiredState(file_pages=FilePages(action="pageout", victim="largest-size")),
        says="file pages: cold only, the background is running",
    ),
    Refusal(
        rule=GuardRule.ZONE_MEMORY, wish=Wish.PROTECTED_LOW, label="guarantee",
        desired=DesiredState(protected_low_bytes=1 << 40),
        says="protected group: guarantee cut to the zone's memory, 600 MiB",
        numbers=(None, 600 * MIB, Unit.BYTES),
    ),
    Refusal(
        rule=GuardRule.ZONE_UNKNOWN, wish=Wish.PROTECTED_LOW, label="guarantee",
        desired=DesiredState(protected_low_bytes=1 << 40),
        sample={"zone": GroupSample(name="zone")},
        says="protected group: no guarantee, the zone's memory is not known",
    ),
)  # fmt: skip


def _guard() -> Guard:
    return Guard(budgets=Budgets(), floors_bytes=(FLOOR, FLOOR), online_cpus=frozenset({0, 1, 3}))


def _sample(case: Refusal) -> Sample:
    sample = make_sample()
    group = GroupSample(name="edge/hog0", memory_usage_bytes=case.usage_bytes)
    states = (case.state, SlotState(reference_bytes=WANTS))
    changes = {"slots": (group, sample.slots[1]), "slot_states": states, **case.sample}
    return replace(sample, **changes)


def _only(changes: Iterable[GuardChange]) -> GuardChange:
    (change,) = changes
    return change


def _label(change: GuardChange) -> str | None:
    return guard_rule(REASONS.to_wire(Reasons(changes=(change,))).changes[0])


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: f"{case.wish.value}-{case.rule.value}")
def test_every_rule_of_the_guard_names_itself_and_its_numbers(case: Refusal) -> None:
    desired = case.desired
    if case.slot != SlotDesire():
        desired = replace(desired, slots=(case.slot,))
    change = _only(_guard().review(desired, _sample(case), GuardMemory()).changes)
    assert (change.rule, change.wish) == (case.rule, case.wish)
    assert (change.found, change.bound, change.unit) == case.numbers
    of_a_slot = case.says.startswith("edge/hog0") or "its slot" in case.says
    assert (change.slot, change.group) == ((0, "edge/hog0") if of_a_slot else (None, ""))
    assert change_text(change) == case.says
    assert _label(change) == case.label


def test_a_limit_under_which_the_kernel_killed_names_itself() -> None:
    limited = SlotState(reference_bytes=WANTS, limit_bytes=240 * MIB)
    case = Refusal(rule=GuardRule.LIMIT_KILLED, wish=Wish.MEMORY, says="", label="", state=limited)
    memory, wish = GuardMemory(), DesiredState(slots=(SlotDesire(limit_bytes=240 * MIB),))
    for kills, time_s in ((0, 1000.0), (1, 1000.1), (1, 1012.1)):
        sample = replace(_sample(case), time_s=time_s)
        killed = replace(sample.slots[0], oom_kills=kills)
        sample = replace(sample, slots=(killed, sample.slots[1]))
        verdict = _guard().review(wish, sample, memory)
        memory = verdict.memory
    change = _only(verdict.changes)
    assert (change.rule, change.wish, change.slot) == (GuardRule.LIMIT_KILLED, Wish.MEMORY, 0)
    assert change.found == pytest.approx(12.0)
    assert change.unit is Unit.SECONDS
    says = "edge/hog0: not limited: under a limit the kernel killed in it 12 s ago"
    assert change_text(change) == says
    assert _label(change) == "limit_unknown"


@pytest.mark.parametrize(
    ("wish", "desired", "label", "says"),
    [
        (Wish.HOLD, DesiredState(slots=(PAUSE,)), "no_pressure", "edge/hog0: not held back, "),
        (Wish.STOP, STOP, "stop", "pid 100: not stopped, "),
    ],
)
def test_a_hold_without_a_sign_of_memory_pressure_names_itself(
    wish: Wish, desired: DesiredState, label: str, says: str
) -> None:
    budgets = Budgets(max_hold_without_pressure_share=0.0, pressure_lasts_s=60.0)
    guard = Guard(budgets=budgets, floors_bytes=(FLOOR, FLOOR))
    case = Refusal(rule=GuardRule.NO_PRESSURE, wish=wish, says=says, label=label)
    sample = replace(
        _sample(case),
        slot_states=(SlotState(), SlotState()),
        zone=GroupSample(name="zone", memory_usage_bytes=1, memory_limit_bytes=600 * MIB),
    )
    memory = guard.review(desired, sample, GuardMemory()).memory
    later = replace(sample, time_s=sample.time_s + 90.0)
    change = _only(guard.review(desired, later, memory).changes)
    assert (change.rule, change.wish) == (GuardRule.NO_PRESSURE, wish)
    assert (change.found, change.bound, change.unit) == (90.0, 0.0, Unit.SECONDS)
    why = "no sign of memory pressure for 90 s, and without one only 0 s of an hour"
    assert change_text(change) == says + why
    assert _label(change) == label


def test_stops_in_a_slot_that_another_program_has_paused_are_refused() -> None:
    case = Refusal(
        rule=GuardRule.SET_BY_OTHERS, wish=Wish.STOP, says="", label="stop",
        sample=_levers("pause:hog0"),
    )  # fmt: skip
    aside, change = _guard().review(STOP, _sample(case), GuardMemory()).changes
    assert (aside.wish, aside.lever) == (Wish.LEVER, "pause:hog0")
    assert (change.rule, change.wish, change.slot) == (GuardRule.SET_BY_OTHERS, Wish.STOP, 0)
    assert change_text(change) == "pid 100: not stopped, its slot was left to another program"


def test_a_limit_below_what_cannot_be_reclaimed_names_the_lowest_one_that_works() -> None:
    sample = make_sample()
    anonymous = replace(
        sample.slots[0], memory_usage_bytes=200 * MIB, anon_bytes=200 * MIB, file_bytes=0
    )
    sample = replace(
        sample,
        node=replace(sample.node, swap_total_bytes=0, swap_free_bytes=0),
        slots=(anonymous, *sample.slots[1:]),
    )
    want = DesiredState(slots=(SlotDesire(paused=True, limit_bytes=FLOOR),))
    change = _only(_guard().review(want, sample, GuardMemory()).changes)
    assert (change.rule, change.bound, change.unit) == (
        GuardRule.LOWEST_WORKABLE, 200 * MIB, Unit.BYTES,
    )  # fmt: skip
    assert change_text(change).endswith("limit raised to 200 MiB, the least it can work with")


def test_no_rule_is_untested() -> None:
    tested = {case.rule for case in REFUSALS}
    tested |= {GuardRule.LIMIT_KILLED, GuardRule.LOWEST_WORKABLE, GuardRule.NO_PRESSURE}
    tested |= set(RULES_OF_THREADS)  # in test_guard_threads.py
    assert tested == set(GuardRule) - {GuardRule.OTHER}
    wishes = {case.wish for case in REFUSALS} | {Wish.MEMORY, Wish.HOLD, Wish.THREADS}
    assert wishes == set(Wish) - {Wish.OTHER}


def test_changes_that_are_left_out_are_counted() -> None:
    refs = tuple(ProcessRef(pid=1000 + i, start_time_ticks=0) for i in range(100))
    verdict = _guard().review(DesiredState(stopped=refs), make_sample(), GuardMemory())
    reasons = Reasons(changes=verdict.changes, changes_left_out=verdict.changes_left_out)
    assert reason_notes(reasons)[-1] == f"and {100 - len(verdict.changes)} more notes"
