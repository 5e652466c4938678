"""Tests of what the guard never grants, whichever controller decides."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.guard.changes import GuardRule, Unit, Wish
from stallward.actuator.guard.guard import Guard, GuardMemory, slots_with_stopped
from stallward.actuator.guard.slot_tracker import SlotFacts, SlotTracker
from stallward.actuator.record.problem_text import problem_text
from stallward.agent.desired import (
    LIMIT_RATIOS,
    MIB,
    DesiredState,
    ProcessRef,
    SlotDesire,
    Tuning,
    limit_level,
)
from stallward.agent.sample import Sample, SlotState
from stallward.agent.testing import PROTECTED_PROCESS, make_sample

FLOOR = 16 * MIB
PERIOD_S = 0.1


def _guard(**budgets: object) -> Guard:
    return Guard(
        budgets=Budgets(**budgets),  # type: ignore[arg-type]
        floors_bytes=(FLOOR, FLOOR),
        protected_pids=frozenset({42}),
        tick_period_s=PERIOD_S,
    )


def _sample(*states: SlotState) -> Sample:
    sample = make_sample()
    return replace(sample, slot_states=states) if states else sample


slot_wants = st.builds(
    SlotDesire,
    paused=st.booleans(),
    limit_bytes=st.none() | st.integers(1, 400 * MIB),
)
stop_wants = st.lists(
    st.sampled_from(
        [ProcessRef(pid=100, start_time_ticks=7), ProcessRef(pid=1, start_time_ticks=0)]
    ),
    max_size=2,
).map(tuple)
wants = st.builds(
    DesiredState,
    slots=st.lists(slot_wants, max_size=2).map(tuple),
    stopped=stop_wants,
)


@settings(deadline=None, max_examples=settings().max_examples // 4)
@given(
    phases=st.lists(st.tuples(wants, st.integers(1, 120)), min_size=1, max_size=12),
    max_pause_s=st.sampled_from([0.5, 2.0, 5.0]),
    max_pause_share=st.sampled_from([0.1, 0.5, 0.8]),
)
def test_no_sequence_of_wishes_breaks_the_budgets(
    phases: list[tuple[DesiredState, int]], max_pause_s: float, max_pause_share: float
) -> None:
    guard = _guard(max_pause_s=max_pause_s, max_pause_share=max_pause_share, min_run_s=0.3)
    tracker, memory = SlotTracker(2), GuardMemory()
    time_s, history = 1000.0, []
    levels = [0, 0]
    for desired in (d for d, ticks in phases for _ in range(ticks)):
        states = tracker.states(time_s)
        sample = replace(_sample(), time_s=time_s, slot_states=states)
        verdict = guard.review(desired, sample, memory)
        memory, granted = verdict.memory, verdict.granted
        stopped = slots_with_stopped(granted, sample)
        facts = [
            SlotFacts(
                paused=slot.paused or i in stopped,
                limit_bytes=slot.limit_bytes,
                usage_bytes=300 * MIB,
            )
            for i, slot in enumerate(granted.slots)
        ]
        for i, (slot, state) in enumerate(zip(granted.slots, states, strict=True)):
            if slot.limit_bytes is not None:
                assert slot.limit_bytes >= FLOOR
            level = limit_level(slot.limit_bytes, state.reference_bytes)
            assert slot.paused or level <= levels[i] + 1
            levels[i] = level
        assert all(ref.pid == 100 for ref in granted.stopped)
        tracker.update(time_s, facts)
        history.append([fact.paused for fact in facts])
        time_s += PERIOD_S
    for slot_history in zip(*history, strict=True):
        _check_budgets(list(slot_history), max_pause_s, max_pause_share, min_run_s=0.3)


def _check_budgets(
    paused: list[bool], max_pause_s: float, max_pause_share: float, min_run_s: float
) -> None:
    window = round(60 / PERIOD_S)
    for start in range(len(paused)):
        share = sum(paused[start : start + window]) / window
        assert share <= max_pause_share + 2 / window
    runs: list[tuple[bool, int]] = []
    for value in paused:
        if runs and runs[-1][0] == value:
            runs[-1] = (value, runs[-1][1] + 1)
        else:
            runs.append((value, 1))
    for position, (value, ticks) in enumerate(runs):
        if value:
            assert ticks * PERIOD_S <= max_pause_s + 1e-6
        elif 0 < position < len(runs) - 1:
            assert ticks * PERIOD_S >= min_run_s - 1e-6


@given(desired=wants)
def test_a_granted_state_is_granted_again_unchanged(desired: DesiredState) -> None:
    guard, sample = _guard(), _sample()
    first = guard.review(desired, sample, GuardMemory())
    again = guard.review(first.granted, sample, first.memory)
    assert again.granted == first.granted


def test_a_long_pause_ends_and_says_why() -> None:
    states = (SlotState(paused=True, paused_for_s=4.95), SlotState())
    want = DesiredState(slots=(SlotDesire(paused=True), SlotDesire(paused=True)))
    verdict = _guard().review(want, _sample(*states), GuardMemory())
    assert [slot.paused for slot in verdict.granted.slots] == [False, True]
    (change,) = verdict.changes
    assert (change.rule, change.wish, change.slot) == (GuardRule.MAX_PAUSE, Wish.PAUSE, 0)
    assert (change.found, change.bound, change.unit) == (4.95, 5.0, Unit.SECONDS)


def test_lifted_budgets_lift_the_pause_but_not_the_floor() -> None:
    spent = SlotState(paused=True, paused_for_s=100.0, paused_share=1.0, reference_bytes=300 * MIB)
    states = (spent, SlotState(reference_bytes=300 * MIB))
    want = DesiredState(slots=(SlotDesire(paused=True, limit_bytes=1), SlotDesire(limit_bytes=1)))
    granted = _guard(lift_budgets=True).review(want, _sample(*states), GuardMemory()).granted
    assert granted.slots[0] == SlotDesire(paused=True, limit_bytes=FLOOR)
    assert granted.slots[1].limit_bytes == FLOOR


@pytest.mark.parametrize("lift_budgets", [False, True])
@given(desired=wants, longest_s=st.sampled_from([0.0, 0.3, 0.5]))
def test_no_wish_and_no_lifted_budget_pauses_a_pod_for_longer_than_its_probes_allow(
    desired: DesiredState, longest_s: float, *, lift_budgets: bool
) -> None:
    guard = _guard(lift_budgets=lift_budgets, min_run_s=0.0)
    ended = SlotState(paused=True, paused_for_s=longest_s, longest_pause_s=longest_s)
    thawed = SlotState(since_thaw_s=0.3, longest_pause_s=9.0, shortest_run_s=0.5)
    sample = _sample(ended, thawed)
    verdict = guard.review(desired, sample, GuardMemory())
    assert not any(verdict.granted.slot(i).paused for i in range(2))
    assert not slots_with_stopped(verdict.granted, sample)


def test_a_pod_may_be_paused_for_as_long_as_its_probes_allow() -> None:
    want = DesiredState(slots=(SlotDesire(paused=True), SlotDesire(paused=True)))
    starts = SlotState(longest_pause_s=0.5, shortest_run_s=0.5)
    goes_on = SlotState(paused=True, paused_for_s=0.3, longest_pause_s=0.5)
    verdict = _guard().review(want, _sample(starts, goes_on), GuardMemory())
    assert all(slot.paused for slot in verdict.granted.slots)


REFERENCE = 300 * MIB
LEVELS = [int(REFERENCE * ratio) for ratio in LIMIT_RATIOS[1:]]


def _tighten(
    guard: Guard, gaps_s: list[float], field: str = "limit_bytes", usage_bytes: int = 0
) -> list[int | None]:
    """The limits granted tick by tick when the tightest is desired and each is applied at once."""

    memory, limit, time_s, seen = GuardMemory(), None, 1000.0, []
    want = DesiredState(slots=(SlotDesire(**{field: 1}),))  # type: ignore[arg-type]
    for gap_s in gaps_s:
        time_s += gap_s
        state = SlotState(reference_bytes=REFERENCE, limit_bytes=limit)
        sample = replace(_sample(state, SlotState()), time_s=time_s)
        group = replace(sample.slots[0], memory_usage_bytes=usage_bytes)
        sample = replace(sample, slots=(group, sample.slots[1]))
        verdict = guard.review(want, sample, memory)
        memory = verdict.memory
        granted = getattr(verdict.granted.slots[0], field)
        limit = granted if field == "limit_bytes" else None
        seen.append(granted)
    return seen


@pytest.mark.parametrize("field", ["limit_bytes", "hard_limit_bytes"])
def test_a_limit_tightens_one_level_a_tick(field: str) -> None:
    # Without a limit beside it, a hard limit is granted only where work may be ended.
    guard = _guard(allow_terminate=field == "hard_limit_bytes")
    assert _tighten(guard, [0.1] * 6, field) == [*LEVELS, LEVELS[-1]]


def test_ticks_that_follow_at_once_do_not_tighten_faster() -> None:
    seen = _tighten(_guard(), [0.1, 0.01, 0.01, 0.01, 0.03, 0.01, 0.0])
    assert seen == [LEVELS[0]] * 4 + [LEVELS[1]] * 3


def test_a_limit_is_released_at_once() -> None:
    states = (SlotState(reference_bytes=REFERENCE, limit_bytes=LEVELS[-1]), SlotState())
    granted = _guard().review(DesiredState(), _sample(*states), GuardMemory()).granted
    assert granted.slots[0].limit_bytes is None


def test_a_paused_slot_is_squeezed_at_once() -> None:
    want = DesiredState(slots=(SlotDesire(paused=True, limit_bytes=30 * MIB),))
    granted = _guard().review(want, _sample(), GuardMemory()).granted
    assert granted.slots[0].limit_bytes == 30 * MIB


@pytest.mark.parametrize("paused", [False, True])
@pytest.mark.parametrize("lift_budgets", [False, True])
def test_a_group_that_is_still_starting_is_not_limited(paused: bool, lift_budgets: bool) -> None:
    want = DesiredState(slots=(SlotDesire(paused=paused, limit_bytes=30 * MIB),))
    guard = _guard(lift_budgets=lift_budgets)
    verdict = guard.review(want, _sample(SlotState(), SlotState()), GuardMemory())
    assert verdict.granted.slots[0] == SlotDesire(paused=paused)
    assert [change.rule for change in verdict.changes] == [GuardRule.DEMAND_UNKNOWN]


@pytest.mark.parametrize(
    "ref",
    [
        ProcessRef(pid=1, start_time_ticks=0),
        ProcessRef(pid=42, start_time_ticks=7),
        ProcessRef(pid=100, start_time_ticks=8),
        ProcessRef(pid=9999, start_time_ticks=7),
    ],
    ids=["init", "protected", "recycled", "foreign"],
)
def test_only_background_processes_are_touched(ref: ProcessRef) -> None:
    sample = _sample()
    own = replace(sample.processes[0], pid=42)  # type: ignore[index]
    sample = replace(sample, processes=(*(sample.processes or ()), own))
    guard = _guard(allow_terminate=True)
    verdict = guard.review(DesiredState(stopped=(ref,), terminate=ref), sample, GuardMemory())
    assert verdict.granted.stopped == ()
    assert verdict.granted.terminate is None
    refused = [(change.rule, change.wish, change.pid) for change in verdict.changes]
    assert refused == [
        (GuardRule.NOT_BACKGROUND, Wish.STOP, ref.pid),
        (GuardRule.NOT_BACKGROUND, Wish.TERMINATE, ref.pid),
    ]


def test_processes_of_the_protected_application_are_never_touched() -> None:
    sample = _sample()
    moved = replace(PROTECTED_PROCESS, slot=0)  # it is still listed where it came from
    sample = replace(sample, processes=(moved, *(sample.processes or ())))
    ref = ProcessRef(
        pid=PROTECTED_PROCESS.pid, start_time_ticks=PROTECTED_PROCESS.start_time_ticks
    )
    want = DesiredState(stopped=(ref,), terminate=ref)
    granted = _guard(allow_terminate=True).review(want, sample, GuardMemory()).granted
    assert (granted.stopped, granted.terminate) == ((), None)


def test_without_known_processes_none_is_stopped() -> None:
    sample = replace(_sample(), processes=None)
    want = DesiredState(stopped=(ProcessRef(pid=100, start_time_ticks=7),))
    assert _guard().review(want, sample, GuardMemory()).granted.stopped == ()


def test_terminating_must_be_allowed() -> None:
    ref = ProcessRef(pid=100, start_time_ticks=7)
    want = DesiredState(terminate=ref)
    assert _guard().review(want, _sample(), GuardMemory()).granted.terminate is None
    allowed = _guard(allow_terminate=True).review(want, _sample(), GuardMemory())
    assert allowed.granted.terminate == ref


@pytest.mark.parametrize(
    ("desired", "why"),
    [
        (DesiredState(slots=(SlotDesire(),) * 3), "3 slots desired"),
        (DesiredState(slots=(SlotDesire(limit_bytes=0),)), "limit_bytes is"),
        (DesiredState(slots=(SlotDesire(limit_bytes=1 << 63),)), "limit_bytes is"),
        (DesiredState(tuning=Tuning(swappiness=201)), "swappiness is 201"),
        (DesiredState(tuning=Tuning(protected_swappiness=-1)), "protected_swappiness"),
        (DesiredState(tuning=Tuning(dirty_ratio=math.nan)), "dirty_ratio is nan"),
        (DesiredState(tuning=Tuning(dirty_background_ratio=math.inf)), "dirty_background_ratio"),
        (DesiredState(tuning=Tuning(overcommit_memory=3)), "overcommit_memory"),
        (DesiredState(tuning=Tuning(name="\ud800")), "printable"),
        (None, "no desired state"),
        (DesiredState(slots=(None,)), "no desire for a slot"),  # type: ignore[arg-type]
        (DesiredState(slots=(SlotDesire(paused=1),)), "not true or false"),  # type: ignore[arg-type]
        (DesiredState(slots=(SlotDesire(limit_bytes=1e9),)), "not an integer"),  # type: ignore[arg-type]
        (DesiredState(slots=(SlotDesire(limit_bytes=True),)), "not an integer"),
        (DesiredState(slots=(SlotDesire(), SlotDesire(cpu_weight=0))), "(slot 1)"),
        (DesiredState(slots=(SlotDesire(io_weight=10001),)), "io_weight is 10001"),
        (DesiredState(slots=(SlotDesire(cpu_max_cores=math.nan),)), "not finite"),
        (DesiredState(slots=(SlotDesire(cpu_max_cores=0),)), "cpu_max_cores is 0"),
        (DesiredState(slots=(SlotDesire(nice=20),)), "nice is 20"),
        (DesiredState(slots=(SlotDesire(cpus=(0, 8192)),)), "cpus is 8192"),
        (DesiredState(slots=(SlotDesire(page_advice="free"),)), "page_advice"),  # type: ignore[arg-type]
        (DesiredState(stopped=(ProcessRef(pid=-1, start_time_ticks=0),)), "pid is -1"),
        (DesiredState(stopped=(ProcessRef(pid=2, start_time_ticks=0),) * 4097), "at most 4096"),
        (DesiredState(protected_low_bytes=-1), "protected_low_bytes"),
    ],
)
def test_an_invalid_desired_state_names_its_flaw(desired: DesiredState, why: str) -> None:
    problem = _guard().invalid(desired)
    assert problem is not None
    assert why in problem_text(problem)


def test_the_default_state_is_valid() -> None:
    assert _guard().invalid(DesiredState()) is None
