"""Tests of how long work is held back while nothing shows that memory is short."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.guard.changes import GuardChange, GuardRule, Unit, Wish
from stallward.actuator.guard.guard import Guard, GuardMemory
from stallward.agent.desired import (
    MIB,
    PROFILES,
    RELEASED,
    DesiredState,
    ProcessRef,
    SlotDesire,
)
from stallward.agent.sample import (
    GroupSample,
    LatencySample,
    NodeSample,
    ProcessSample,
    PsiTotals,
    Sample,
    SlotState,
)

HOUR_S = 3600.0
LASTS_S = 300.0
SHARE = 0.1
TICK_S = 2.0
"""Longer than a real tick, so that hours are few of them."""
GROUP = GroupSample(name="edge/hog0", memory_usage_bytes=100 * MIB)
HOG = ProcessRef(pid=100, start_time_ticks=7)
PAUSE = DesiredState(slots=(SlotDesire(paused=True),))
LIMIT = DesiredState(slots=(SlotDesire(limit_bytes=80 * MIB),))
STOP = DesiredState(stopped=(HOG,))
CALM = Sample(
    sequence=0,
    time_s=1000.0,
    node=NodeSample(
        memory_total_bytes=16_000 * MIB, memory_available_bytes=8_000 * MIB, scan_direct_pages=0
    ),
    zone=GroupSample(
        name="zone",
        psi=PsiTotals(memory_some_us=0),
        memory_usage_bytes=500 * MIB,
        memory_limit_bytes=1000 * MIB,
        inactive_file_bytes=0,
    ),
    protected=GroupSample(
        name="app",
        psi=PsiTotals(memory_some_us=0),
        refault_file_pages=0,
        refault_anon_pages=0,
        major_faults=0,
    ),
    slots=(GROUP,),
    slot_states=(SlotState(reference_bytes=100 * MIB),),
    latency=LatencySample(completed=100, mean_ms=9e3, p95_ms=9e3, max_ms=9e3),
    processes=(ProcessSample(pid=100, start_time_ticks=7, slot=0, oom_score=0, stopped=False),),
)
"""A node with half of its memory free, whose application reports bad latencies."""


@dataclass
class Node:
    """A node behind a guard; what stalls and refaults is what a test adds to its sample."""

    guard: Guard = field(
        default_factory=lambda: Guard(
            budgets=Budgets(
                lift_budgets=False, max_pause_s=1e4, max_pause_share=1.0, min_run_s=0.0
            ),
            floors_bytes=(16 * MIB,),
        )
    )
    sample: Sample = CALM
    memory: GuardMemory = field(default_factory=GuardMemory)
    changes: tuple[GuardChange, ...] = ()

    def tick(
        self, desired: DesiredState, after_s: float = 0.5, horizon_s: float | None = None
    ) -> DesiredState:
        self.sample = replace(self.sample, time_s=self.sample.time_s + after_s)
        verdict = self.guard.review(
            desired,
            self.sample,
            self.memory,
            horizon_s=after_s if horizon_s is None else horizon_s,
        )
        self.memory, self.changes = verdict.memory, verdict.changes
        return verdict.granted

    def holds(self, desired: DesiredState, seconds: float, after_s: float = 0.5) -> list[bool]:
        """At each tick of some time, whether the guard grants to hold back."""
        count = round(seconds / after_s)
        return [_holds(self.tick(desired, after_s)) for _ in range(count)]

    def use_up(self, desired: DesiredState = LIMIT) -> None:
        """Hold back without a sign for so long that it is refused."""
        held = self.holds(desired, LASTS_S + SHARE * HOUR_S)
        assert held[0]
        assert not held[-1]


def _holds(granted: DesiredState) -> bool:
    return bool(granted.stopped) or any(
        slot.paused or slot.limit_bytes is not None for slot in granted.slots
    )


def _node(**budgets: float | bool) -> Node:
    node = Node()
    bounds = replace(node.guard.budgets, **budgets)  # type: ignore[arg-type]
    return Node(guard=replace(node.guard, budgets=bounds))


# ------------------------------------------------------------------ latencies alone


@pytest.mark.parametrize("desired", [PAUSE, LIMIT, STOP], ids=["pause", "limit", "stop"])
def test_latencies_alone_hold_back_for_a_bounded_share_of_every_hour(
    desired: DesiredState,
) -> None:
    held = _node().holds(desired, 4 * HOUR_S, TICK_S)
    hour = round(HOUR_S / TICK_S)
    first = round(LASTS_S / TICK_S) + 1
    assert all(held[:first]), "what was before the first sample is not known"
    for start in range(first, len(held) - hour, 100):
        assert sum(held[start : start + hour]) * TICK_S <= SHARE * HOUR_S
    assert sum(held[-hour:]) * TICK_S >= SHARE * HOUR_S / 4, "the budget comes back"


def test_taking_turns_does_not_get_around_the_budget() -> None:
    node = _node()
    held = []
    for k in range(round(2 * HOUR_S)):
        want = (PAUSE, LIMIT, STOP, RELEASED)[k % 4]
        held.append(_holds(node.tick(want, 1.0)))
    late = held[round(LASTS_S) + 1 :]
    assert max(sum(late[k : k + 3600]) for k in range(0, len(late) - 3600, 60)) <= SHARE * HOUR_S


def test_a_refusal_releases_everything_that_holds_back_and_nothing_else() -> None:
    node = _node()
    node.use_up()
    other = SlotDesire(cpu_weight=50, io_weight=60, nice=5, cpu_max_cores=0.5)
    held = replace(
        other, paused=True, limit_bytes=80 * MIB, hard_limit_bytes=200 * MIB, swap_max_bytes=0,
        reclaim_to_bytes=80 * MIB,
    )  # fmt: skip
    desired = DesiredState(slots=(held,), stopped=(HOG,), tuning=PROFILES[1])
    granted = node.tick(desired)
    assert granted.slots == (other,)
    assert granted.stopped == ()
    assert granted.tuning == PROFILES[1]
    slot, stop = node.changes
    assert (slot.rule, slot.wish, slot.slot) == (GuardRule.NO_PRESSURE, Wish.HOLD, 0)
    assert (slot.group, slot.bound, slot.unit) == ("edge/hog0", SHARE * HOUR_S, Unit.SECONDS)
    assert slot.found == pytest.approx(LASTS_S + SHARE * HOUR_S, abs=1.0)
    assert (stop.wish, stop.pid) == (Wish.STOP, 100)


def test_after_a_refusal_half_of_the_budget_must_be_there_again() -> None:
    node = _node()
    node.use_up()
    held = node.holds(LIMIT, 2 * HOUR_S, 1.0)
    moves = sum(a != b for a, b in pairwise(held))
    assert moves <= 8, "it does not flap"


def test_without_a_bound_latencies_alone_hold_back_for_ever() -> None:
    assert all(_node(max_hold_without_pressure_share=1.0).holds(LIMIT, 3 * HOUR_S, 2.0))
    assert all(_node(lift_budgets=True).holds(LIMIT, 3 * HOUR_S, 2.0))


def test_what_was_held_while_there_was_no_bound_does_not_count_under_the_next_one() -> None:
    node = _node()
    bounded = node.guard
    node.holds(LIMIT, 60.0)
    node.guard = replace(bounded, budgets=replace(bounded.budgets, lift_budgets=True))
    assert all(node.holds(LIMIT, 3 * HOUR_S, 2.0))
    node.guard = bounded
    assert all(node.holds(LIMIT, LASTS_S))
    node.use_up()


def test_with_no_share_nothing_is_held_back_without_a_sign() -> None:
    node = _node(max_hold_without_pressure_share=0.0, pressure_lasts_s=10.0)
    assert node.holds(PAUSE, 60.0, 1.0) == [True] * 11 + [False] * 49


# ------------------------------------------------------------------ signs


def _app(**changes: object) -> Callable[[Sample], Sample]:
    return lambda s: replace(s, protected=replace(s.protected, **changes))  # type: ignore[arg-type]


def _zone(**changes: object) -> Callable[[Sample], Sample]:
    return lambda s: replace(s, zone=replace(s.zone, **changes))  # type: ignore[arg-type]


def _machine(**changes: object) -> Callable[[Sample], Sample]:
    return lambda s: replace(s, node=replace(s.node, **changes))  # type: ignore[arg-type]


def _slot(reference_bytes: int = 100 * MIB, **changes: object) -> Callable[[Sample], Sample]:
    return lambda s: replace(
        s,
        slots=(replace(s.slots[0], **changes),),  # type: ignore[arg-type]
        slot_states=(SlotState(reference_bytes=reference_bytes),),
    )


def _stall_us(us: int) -> PsiTotals:
    return PsiTotals(memory_some_us=us)


SIGNS = {
    "the application stalls": _app(psi=_stall_us(6_000)),
    "the application's files come back": _app(refault_file_pages=60),
    "the application's memory comes back": _app(refault_anon_pages=60),
    "the zone is full": _zone(memory_usage_bytes=901 * MIB),
    "the zone would be full if all were released": _slot(550 * MIB),
    "the machine is short": _machine(memory_available_bytes=1_500 * MIB),
    "the machine would be short if all were released": _slot(7_000 * MIB),
    "tasks of the machine look for memory": _machine(scan_direct_pages=60),
}


@pytest.mark.parametrize("change", SIGNS.values(), ids=SIGNS)
@pytest.mark.parametrize("desired", [PAUSE, LIMIT], ids=["pause", "limit"])
def test_a_sign_explains_holds_for_minutes(
    change: Callable[[Sample], Sample], desired: DesiredState
) -> None:
    node = _node()
    node.use_up(desired)
    calm = node.sample
    node.sample = change(node.sample)
    assert _holds(node.tick(desired)), "as soon as it is seen"
    # Totals stay where they are; what is a state is over.
    node.sample = replace(
        node.sample,
        zone=calm.zone,
        slots=calm.slots,
        slot_states=calm.slot_states,
        node=replace(calm.node, scan_direct_pages=node.sample.node.scan_direct_pages),
    )
    held = node.holds(desired, 2 * LASTS_S)
    explained = round(LASTS_S / 0.5)
    assert all(held[:explained])
    assert not any(held[explained:]), "then the budget is still used up"


def test_the_zones_stall_is_a_sign_where_no_memory_is_taken_from_anybody() -> None:
    node = _node()
    node.use_up(PAUSE)
    node.sample = _zone(psi=_stall_us(6_000))(node.sample)
    assert _holds(node.tick(PAUSE))


def test_major_faults_count_where_the_kernel_does_not_count_refaults() -> None:
    node = _node()
    blind = _app(refault_file_pages=None, refault_anon_pages=None)
    node.sample = blind(node.sample)
    node.use_up()
    node.sample = _app(major_faults=60)(node.sample)
    assert _holds(node.tick(LIMIT))


NO_SIGNS = {
    "files read for the first time": _app(major_faults=10_000),
    "a slow disk": _app(psi=PsiTotals(memory_some_us=0, io_some_us=500_000, io_full_us=500_000)),
    "a busy CPU": _app(psi=PsiTotals(memory_some_us=0, cpu_some_us=500_000)),
    "a single page": _app(psi=_stall_us(200), refault_file_pages=1),
    "a zone full of files that are read once": _zone(
        memory_usage_bytes=1000 * MIB, inactive_file_bytes=450 * MIB
    ),
    "kswapd on a machine full of files": _machine(scan_kswapd_pages=100_000),
    "a limited group that stalls": _slot(
        psi=_stall_us(400_000), refault_file_pages=9_000, refault_anon_pages=9_000, major_faults=99
    ),
    "the same, seen in the zone": _zone(psi=_stall_us(400_000), refault_anon_pages=9_000),
    "the same, seen in the machine": _machine(
        psi=_stall_us(400_000), swap_in_pages=9_000, swap_out_pages=9_000, major_faults=9_000
    ),
    "a counter that begins anew": _app(psi=_stall_us(-5), refault_file_pages=-5),
}


@pytest.mark.parametrize("change", NO_SIGNS.values(), ids=NO_SIGNS)
def test_what_holds_cause_and_what_memory_has_no_part_in_is_no_sign(
    change: Callable[[Sample], Sample],
) -> None:
    node = _node()
    node.use_up(LIMIT)
    node.sample = change(node.sample)
    assert not _holds(node.tick(LIMIT))


def test_what_comes_back_from_swap_after_a_limit_is_no_sign() -> None:
    """Else holds would explain themselves, and latencies alone would hold back for ever."""
    node = _node()
    node.use_up(LIMIT)
    held = []
    for k in range(round(HOUR_S)):
        node.sample = _zone(psi=_stall_us(200_000 * k))(node.sample)
        held.append(_holds(node.tick(LIMIT, 1.0)))
    assert sum(held) <= SHARE * HOUR_S


BLIND = {
    "no stall and no refaults": _app(
        psi=PsiTotals(), refault_file_pages=None, refault_anon_pages=None, major_faults=None
    ),
    "how full the zone is": _zone(memory_usage_bytes=None),
    "how full the machine is": lambda s: _machine(memory_available_bytes=None)(
        _zone(memory_limit_bytes=None)(s)
    ),
}


@pytest.mark.parametrize("change", BLIND.values(), ids=BLIND)
def test_where_pressure_cannot_be_seen_holds_have_the_benefit_of_the_doubt(
    change: Callable[[Sample], Sample],
) -> None:
    node = _node()
    node.sample = change(node.sample)
    assert all(node.holds(LIMIT, 3 * HOUR_S, 2.0))


def test_a_machine_as_zone_is_judged_by_its_available_memory() -> None:
    node = _node()
    node.guard = replace(node.guard, zone_limit_bytes=16_000 * MIB)
    whole = _zone(memory_limit_bytes=None, memory_usage_bytes=15_900 * MIB)
    node.sample = whole(node.sample)
    node.use_up()
    node.sample = _machine(memory_available_bytes=1_000 * MIB)(node.sample)
    assert _holds(node.tick(LIMIT))


def test_a_group_without_a_limit_of_its_own_is_judged_by_the_nodes_zone() -> None:
    node = _node()
    node.guard = replace(node.guard, zone_limit_bytes=540 * MIB)
    node.sample = _zone(memory_limit_bytes=None)(node.sample)
    assert all(node.holds(LIMIT, HOUR_S, 2.0))


@pytest.mark.parametrize("time_s", [math.nan, math.inf, -math.inf])
def test_a_sample_without_a_time_changes_nothing(time_s: float) -> None:
    node = _node()
    node.use_up()
    before = node.memory.holds
    odd = replace(node.sample, time_s=time_s)
    verdict = node.guard.review(LIMIT, odd, node.memory)
    assert not _holds(verdict.granted)
    assert verdict.memory.holds == replace(before, held=False, limits=False)


# ------------------------------------------------------------------ any sequence


Step = tuple[float, float, bool, bool]
"""The time to the next tick, how late that is, whether to hold back, and whether a sign comes."""
steps = st.lists(
    st.tuples(
        st.sampled_from([0.1, 0.5, 10.0, 60.0, 400.0]),
        st.sampled_from([0.0, 0.0, 0.0, 5.0]),
        st.sampled_from([True, True, True, False]),
        st.sampled_from([False] * 9 + [True]),
    ),
    min_size=20,
    max_size=200,
)


@given(
    steps=steps,
    share=st.sampled_from([0.0, 0.05, 0.1, 0.5]),
    lasts_s=st.sampled_from([0.0, 60.0, 300.0]),
)
def test_no_sequence_holds_back_for_longer_and_none_is_refused_after_a_sign(
    steps: list[Step], share: float, lasts_s: float
) -> None:
    node = _node(max_hold_without_pressure_share=share, pressure_lasts_s=lasts_s)
    unexplained: list[tuple[float, float]] = []
    late: list[tuple[float, float]] = []
    sign_s, us, before_s, due_s = math.nan, 0, 0.0, 0.0
    held, explained = False, True
    for due_in_s, late_s, wants, sign in steps:
        after_s = due_s + late_s
        us += round(1e6 * max(after_s, 0.1)) if sign else 0
        node.sample = _app(psi=_stall_us(us))(node.sample)
        now_s = node.sample.time_s + after_s
        if sign or math.isnan(sign_s):
            sign_s = now_s
        if held and not explained:
            unexplained.append((before_s, now_s))
            late.append((now_s, late_s))
        explained = now_s - sign_s <= lasts_s
        wish = LIMIT if wants else RELEASED
        granted = _holds(node.tick(wish, after_s, due_in_s))
        again = node.guard.review(wish, node.sample, node.memory, horizon_s=due_in_s)
        assert _holds(again.granted) == granted, "the same sample and wish get the same"
        assert not granted or wants
        assert granted or not wants or not explained, "a sign explains it"
        held, before_s, due_s = granted, now_s, due_in_s
    for _, end_s in unexplained:
        start_s = end_s - HOUR_S
        spent_s = sum(max(min(b, end_s) - max(a, start_s), 0.0) for a, b in unexplained)
        overrun_s = sum(s for at_s, s in late if start_s <= at_s <= end_s)
        assert spent_s <= share * HOUR_S + overrun_s + 1e-6
