"""Tests of the bounds of every lever, and of stepping aside."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.guard.changes import GuardRule
from stallward.actuator.guard.guard import MAX_CHANGES, Guard, GuardMemory, Verdict
from stallward.agent.desired import MIB, DesiredState, ProcessRef, SlotDesire, Tuning
from stallward.agent.file_pages import FileAction, FilePages
from stallward.agent.sample import GroupSample, LeverState, ProcessSample, Sample, SlotState
from stallward.agent.testing import make_sample

FLOOR = 16 * MIB
ASIDE_S = 60.0
WANTS = 300 * MIB


def _guard(**budgets: Any) -> Guard:
    return Guard(
        budgets=Budgets(**budgets),
        floors_bytes=(FLOOR, FLOOR),
        protected_pids=frozenset({42}),
        online_cpus=frozenset({0, 1, 3}),
    )


def _sample(
    state: SlotState | None = None, usage_bytes: int | None = 200 * MIB, **changes: Any
) -> Sample:
    first = SlotState(reference_bytes=WANTS) if state is None else state
    group = GroupSample(name="edge/hog0", memory_usage_bytes=usage_bytes)
    sample = make_sample()
    return replace(
        sample,
        slots=(group, sample.slots[1]),
        slot_states=(first, SlotState(reference_bytes=WANTS)),
        **changes,
    )


def _review(want: SlotDesire, sample: Sample | None = None, **budgets: Any) -> Verdict:
    desired = DesiredState(slots=(want,))
    return _guard(**budgets).review(desired, sample or _sample(), GuardMemory())


def _granted(want: SlotDesire, sample: Sample | None = None, **budgets: Any) -> SlotDesire:
    return _review(want, sample, **budgets).granted.slots[0]


@pytest.mark.parametrize(
    ("field", "want", "granted"),
    [
        ("cpu_max_cores", 0.001, 0.05),
        ("cpu_max_cores", 0.5, 0.5),
        ("io_max_bytes_per_s", 1, 65536),
        ("io_max_bytes_per_s", 1 << 20, 1 << 20),
        ("nice", -20, 0),
        ("nice", 19, 19),
        ("cpu_weight", 1, 1),
        ("io_weight", 10_000, 10_000),
        ("cpus", (3, 0, 0), (0, 3)),
        ("cpus", (0, 2, 7), (0,)),
        ("cpus", (2,), ()),
        ("page_advice", "pageout", "cold"),
        ("page_advice", "willneed", "willneed"),
        ("swap_max_bytes", 0, 0),
        ("reclaim_to_bytes", 0, 180 * MIB),
        ("reclaim_to_bytes", 250 * MIB, 250 * MIB),
        ("terminated", True, False),
    ],
)
def test_each_wish_is_kept_within_its_bound(field: str, want: Any, granted: Any) -> None:
    verdict = _review(SlotDesire(**{field: want}))
    value = getattr(verdict.granted.slots[0], field)
    assert value == granted
    changed = set(value) != set(want) if isinstance(want, tuple) else value != want

    assert bool(verdict.changes) is changed


def test_a_paused_slot_may_be_emptied_at_once_but_not_below_its_floor() -> None:
    want = SlotDesire(paused=True, reclaim_to_bytes=0, page_advice="pageout", limit_bytes=1)
    granted = _granted(want)
    assert granted == replace(want, reclaim_to_bytes=FLOOR, limit_bytes=FLOOR)


def test_ending_a_slot_must_be_allowed() -> None:
    assert _granted(SlotDesire(terminated=True), allow_terminate=True).terminated


def test_cpus_that_are_not_known_are_not_used() -> None:
    guard = replace(_guard(), online_cpus=None)
    want = DesiredState(slots=(SlotDesire(cpus=(0,)),))
    assert guard.review(want, _sample(), GuardMemory()).granted.slots[0].cpus == ()


HARD = SlotDesire(paused=True, limit_bytes=FLOOR, hard_limit_bytes=FLOOR)


def test_a_hard_limit_stays_above_what_the_slot_holds() -> None:
    assert _granted(HARD).hard_limit_bytes == 216 * MIB
    assert _granted(HARD, allow_terminate=True).hard_limit_bytes == FLOOR
    assert _granted(HARD, _sample(usage_bytes=None)).hard_limit_bytes is None


def test_a_hard_limit_follows_a_slot_that_grows_up_to_it() -> None:
    guard, memory, want = _guard(), GuardMemory(), DesiredState(slots=(HARD,))
    for usage_mib in (200, 210, 240, 100):
        verdict = guard.review(want, _sample(usage_bytes=usage_mib * MIB), memory)
        memory = verdict.memory
        assert verdict.granted.slots[0].hard_limit_bytes == (usage_mib + 16) * MIB


def test_a_hard_limit_stays_above_the_limit_which_slows_down_before_it_kills() -> None:
    want = SlotDesire(limit_bytes=280 * MIB, hard_limit_bytes=270 * MIB)
    assert _granted(want).hard_limit_bytes == 296 * MIB
    assert _granted(want, allow_terminate=True).hard_limit_bytes == 280 * MIB


def test_a_hard_limit_beyond_what_a_lever_takes_is_none() -> None:
    huge = (1 << 62) - 1
    want = SlotDesire(limit_bytes=huge, hard_limit_bytes=huge)
    assert _granted(want).hard_limit_bytes is None


def test_a_hard_limit_alone_is_granted_only_where_work_may_be_ended() -> None:
    want = SlotDesire(hard_limit_bytes=290 * MIB)
    assert _granted(want).hard_limit_bytes is None
    assert _granted(want, allow_terminate=True).hard_limit_bytes == 290 * MIB


def test_no_swap_limit_beside_a_hard_one() -> None:
    want = SlotDesire(limit_bytes=260 * MIB, hard_limit_bytes=290 * MIB, swap_max_bytes=0)
    assert _granted(want).swap_max_bytes is None
    assert _granted(want, allow_terminate=True).swap_max_bytes == 0


@pytest.mark.parametrize(
    ("zone_bytes", "known_bytes", "granted"),
    [(600 * MIB, None, 600 * MIB), (None, 500 * MIB, 500 * MIB), (None, None, None)],
)
def test_the_guarantee_of_the_protected_group_fits_into_the_zone(
    zone_bytes: int | None, known_bytes: int | None, granted: int | None
) -> None:
    sample = _sample(zone=GroupSample(name="zone", memory_limit_bytes=zone_bytes))
    guard = replace(_guard(), zone_limit_bytes=known_bytes)
    want = DesiredState(protected_low_bytes=1 << 40, protected_willneed=True)
    verdict = guard.review(want, sample, GuardMemory())
    assert verdict.granted.protected_low_bytes == granted
    assert verdict.granted.protected_willneed
    assert len(verdict.changes) == 1


@pytest.mark.parametrize(
    ("action", "lifted", "granted"),
    [
        ("pageout", False, "cold"),
        ("pageout", True, "pageout"),
        ("clear", False, "clear"),
        ("willneed", False, "willneed"),
    ],
)
def test_file_pages_of_what_runs_are_paged_out_without_budgets_only(
    action: FileAction, lifted: bool, granted: FileAction
) -> None:
    want = FilePages(action=action, victim="largest-size", grab_pages=16)
    guard = _guard(lift_budgets=lifted)
    verdict = guard.review(DesiredState(file_pages=want), _sample(), GuardMemory())
    assert verdict.granted.file_pages == replace(want, action=granted)
    assert bool(verdict.changes) is (granted != action)


PAUSE = SlotDesire(paused=True)


@pytest.mark.parametrize(
    ("state", "horizon_s", "granted"),
    [
        (SlotState(), 0.1, True),
        (SlotState(), 4.9, True),
        (SlotState(), 4.95, False),
        (SlotState(), math.nan, False),
        (SlotState(), math.inf, False),
        (SlotState(paused=True, paused_for_s=4.8), 0.1, True),
        (SlotState(paused=True, paused_for_s=4.8), 0.15, False),
        (SlotState(paused=True, paused_for_s=math.nan), 0.1, False),
        (SlotState(since_thaw_s=0.5), 0.1, True),
        (SlotState(since_thaw_s=0.49), 0.1, False),
        (SlotState(since_thaw_s=math.nan), 0.1, False),
        (SlotState(paused_share=47.8 / 60), 0.1, True),
        (SlotState(paused_share=47.81 / 60), 0.1, False),
        (SlotState(paused_share=math.nan), 0.1, False),
    ],
)
def test_a_pause_is_granted_only_if_it_may_last_until_a_late_next_tick(
    state: SlotState, horizon_s: float, granted: bool
) -> None:
    desired = DesiredState(slots=(PAUSE,))
    verdict = _guard().review(desired, _sample(state), GuardMemory(), horizon_s=horizon_s)
    assert verdict.granted.slots[0].paused is granted
    assert bool(verdict.changes) is not granted


def _process(pid: int, slot: int) -> ProcessSample:
    return ProcessSample(pid=pid, start_time_ticks=7, slot=slot, oom_score=0, stopped=False)


@pytest.mark.parametrize("pid", [1, 42])
def test_a_slot_in_which_a_protected_process_runs_is_left_alone(pid: int) -> None:
    sample = _sample(processes=(_process(pid, 0), _process(7, 1)))
    desired = DesiredState(slots=(replace(PAUSE, limit_bytes=1, nice=19), PAUSE))
    verdict = _guard().review(desired, sample, GuardMemory())
    assert verdict.granted.slots == (SlotDesire(), PAUSE)
    (change,) = verdict.changes
    assert (change.rule, change.protected_pid) == (GuardRule.PROTECTED_PROCESS, pid)


def test_processes_of_the_protected_application_are_never_stopped() -> None:
    sample = _sample(processes=(_process(50, -1), _process(50, 0), _process(51, 0)))
    refs = tuple(ProcessRef(pid=pid, start_time_ticks=7) for pid in (50, 51))
    desired = DesiredState(stopped=refs, terminate=refs[0])
    granted = _guard(allow_terminate=True).review(desired, sample, GuardMemory()).granted
    assert granted.terminate is None
    assert granted.stopped == (), "its slot holds a protected process"


@pytest.mark.parametrize("kept", ["slots", "slot_states"])
def test_in_a_sample_of_another_length_no_slot_is_known(kept: str) -> None:
    sample = _sample()
    sample = replace(sample, **{kept: getattr(sample, kept)[1:]})
    ref = ProcessRef(pid=101, start_time_ticks=8)
    desired = DesiredState(slots=(PAUSE, PAUSE), stopped=(ref,))
    granted = _guard().review(desired, sample, GuardMemory()).granted
    assert granted == DesiredState(slots=(SlotDesire(), SlotDesire()))


def test_a_sample_without_a_time_tightens_nothing() -> None:
    sample = _sample(time_s=math.nan)
    assert _granted(SlotDesire(limit_bytes=1), sample).limit_bytes is None


def test_the_changes_of_one_tick_are_bounded() -> None:
    refs = tuple(ProcessRef(pid=1000 + i, start_time_ticks=0) for i in range(100))
    verdict = _guard().review(DesiredState(stopped=refs), _sample(), GuardMemory())
    assert len(verdict.changes) == MAX_CHANGES
    assert verdict.changes_left_out == 100 - MAX_CHANGES


EVERYTHING = DesiredState(
    slots=(
        SlotDesire(
            paused=True,
            limit_bytes=250 * MIB,
            hard_limit_bytes=290 * MIB,
            reclaim_to_bytes=200 * MIB,
            cpu_weight=10,
            cpu_max_cores=1.0,
            io_weight=10,
            io_max_bytes_per_s=1 << 20,
            nice=5,
            cpus=(0,),
            page_advice="cold",
        ),
    ),
    tuning=Tuning(
        swappiness=90, protected_swappiness=90, dirty_background_ratio=2, dirty_ratio=100,
        overcommit_memory=1,
    ),
    stopped=(ProcessRef(pid=101, start_time_ticks=8),),
    protect_from_oom=True,
    protected_low_bytes=100 * MIB,
)  # fmt: skip


@pytest.mark.parametrize(
    ("lever", "fields"),
    [
        ("pause:hog0", ["paused"]),
        ("limit:hog0", ["limit_bytes", "hard_limit_bytes"]),
        ("limit:edge/hog0", ["limit_bytes", "hard_limit_bytes"]),
        ("hard_limit:hog0", ["hard_limit_bytes"]),
        ("reclaim:hog0", ["reclaim_to_bytes"]),
        ("cpu_weight:hog0", ["cpu_weight"]),
        ("cpu_max:hog0", ["cpu_max_cores"]),
        ("io_weight:hog0", ["io_weight"]),
        ("io_max:hog0", ["io_max_bytes_per_s"]),
        ("nice:hog0", ["cpu_weight", "nice"]),
        ("cpus:hog0", ["cpus"]),
        ("pages:hog0", ["page_advice"]),
        ("vm.swappiness", ["tuning.swappiness"]),
        ("swappiness:app", ["tuning.swappiness", "tuning.protected_swappiness"]),
        ("vm.dirty_bytes", ["tuning.dirty_ratio"]),
        ("vm.dirty_background_ratio", ["tuning.dirty_background_ratio"]),
        ("vm.overcommit_memory", ["tuning.overcommit_memory"]),
        ("stop:101", ["stopped"]),
        ("oom", ["protect_from_oom"]),
        ("memory_low:app", ["protected_low_bytes"]),
        ("memory_min:app", ["protected_low_bytes"]),
        ("oom:7", []),
        ("limit:other", []),
    ],
)
def test_a_lever_that_another_program_has_set_is_not_granted(
    lever: str, fields: list[str]
) -> None:
    guard = _guard()
    sample = replace(_sample(), processes=make_sample().processes)
    foreign = replace(sample, levers=(LeverState(lever=lever, value="1", foreign=True),))
    free = guard.review(EVERYTHING, sample, GuardMemory())
    held = guard.review(EVERYTHING, foreign, GuardMemory())
    assert (free.stepped_aside, held.stepped_aside) == ((), (lever,))
    assert (held.changes[0].rule, held.changes[0].lever) == (GuardRule.SET_BY_OTHERS, lever)
    assert _differences(free.granted, held.granted) == fields


def _differences(one: DesiredState, other: DesiredState) -> list[str]:
    pairs = (("", one, other), ("", one.slots[0], other.slots[0]),
             ("tuning.", one.tuning, other.tuning))  # fmt: skip
    return [
        prefix + name
        for prefix, left, right in pairs
        for name in left.__dataclass_fields__
        if name not in {"slots", "tuning"} and getattr(left, name) != getattr(right, name)
    ]


def test_the_guard_stays_aside_for_a_while_and_counts_once() -> None:
    guard, memory = _guard(), GuardMemory()
    desired = DesiredState(slots=(SlotDesire(cpu_weight=10),))
    foreign = (LeverState(lever="cpu_weight:hog0", value="50", foreign=True),)
    granted, counted = [], 0
    for after_s, levers in (
        (0.0, foreign),
        (1.0, foreign),
        (2.0, ()),
        (1.0 + ASIDE_S - 0.1, ()),
        (1.0 + ASIDE_S, ()),
        (1.0 + ASIDE_S + 1.0, foreign),
    ):
        sample = replace(_sample(), time_s=1000.0 + after_s, levers=levers)
        verdict = guard.review(desired, sample, memory)
        memory = verdict.memory
        granted.append(verdict.granted.slots[0].cpu_weight)
        counted += len(verdict.stepped_aside)
    assert granted == [None, None, None, None, 10, None]
    assert counted == 2


def test_nice_values_of_others_are_left_alone_where_they_stand_in_for_a_weight() -> None:
    foreign = (LeverState(lever="nice:hog0", value="19", foreign=True),)
    desired = DesiredState(slots=(SlotDesire(cpu_weight=1, limit_bytes=80 << 20),))
    verdict = _guard().review(desired, replace(_sample(), levers=foreign), GuardMemory())
    slot = verdict.granted.slots[0]
    assert (slot.cpu_weight, slot.nice) == (None, None)
    assert slot.limit_bytes is not None
