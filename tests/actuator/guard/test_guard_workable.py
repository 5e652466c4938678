"""Tests that no limit goes below the size at which a slot can still work."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.guard.changes import GuardChange, GuardRule, Unit
from stallward.actuator.guard.guard import Guard, GuardMemory
from stallward.actuator.guard.workable import growth_until_next_tick
from stallward.agent.desired import MIB, DesiredState, SlotDesire
from stallward.agent.sample import Sample, SlotState
from stallward.agent.testing import make_sample

FLOOR = 16 * MIB
WANTS = 400 * MIB
TIGHT = SlotDesire(limit_bytes=40 * MIB)
SWAP = 2048 * MIB
REMEMBERED_S = 600.0
GROWTH_MIB = 128
GROWTH = GROWTH_MIB * MIB


@dataclass
class Node:
    """A node with one slot of anonymous memory behind a guard; grants are in force at once."""

    budgets: Budgets = field(default_factory=lambda: Budgets(lift_budgets=True))
    memory: GuardMemory = field(default_factory=GuardMemory)
    time_s: float = 1000.0
    waits: int = 0
    usage: int = 40 * MIB
    file: int = 0
    swap_free: int | None = SWAP
    swap_room: int | None = None
    limit: int | None = None
    paused: bool = False
    hard: bool = False
    growth: int = GROWTH
    dirty: int = 0
    changes: tuple[GuardChange, ...] = ()

    def sample(self) -> Sample:
        sample = make_sample()
        slot = replace(
            sample.slots[0],
            memory_usage_bytes=self.usage,
            anon_bytes=self.usage - self.file,
            file_bytes=self.file,
            swap_room_bytes=self.swap_room,
            dirty_bytes=self.dirty,
            writeback_bytes=0,
        )
        state = SlotState(
            reference_bytes=WANTS,
            limit_bytes=self.limit,
            since_thaw_s=60.0,
            paused=self.paused,
            memory_waits=self.waits,
        )
        return replace(
            sample,
            time_s=self.time_s,
            node=replace(sample.node, swap_free_bytes=self.swap_free),
            slots=(slot, *sample.slots[1:]),
            slot_states=(state, *sample.slot_states[1:]),
        )

    def tick(self, want: SlotDesire = TIGHT, after_s: float = 0.1) -> SlotDesire:
        self.time_s += after_s
        guard = Guard(
            budgets=self.budgets,
            floors_bytes=(FLOOR, FLOOR),
            tick_period_s=0.1,
            growth_bytes=self.growth if self.hard else None,
        )
        verdict = guard.review(DesiredState(slots=(want,)), self.sample(), self.memory)
        self.memory, self.changes = verdict.memory, verdict.changes
        granted = verdict.granted.slots[0]
        self.limit = granted.limit_bytes
        return granted


def test_a_limit_under_which_the_slot_waited_is_raised_at_once_and_remembered() -> None:
    node = Node()
    assert node.tick().limit_bytes == 40 * MIB
    node.waits = 1
    assert node.tick().limit_bytes == 56 * MIB
    (change,) = node.changes
    assert (change.rule, change.bound, change.unit) == (
        GuardRule.LOWEST_WORKABLE, 56 * MIB, Unit.BYTES,
    )  # fmt: skip
    assert node.tick(after_s=REMEMBERED_S - 1.0).limit_bytes == 56 * MIB
    assert node.tick(after_s=1.1).limit_bytes == 40 * MIB


def test_ten_waits_in_a_row_lift_a_limit_of_a_tenth() -> None:
    node = Node()
    node.tick()
    for _ in range(10):
        node.waits += 1
        node.usage = node.limit or WANTS
        node.tick(after_s=0.01)
    assert (node.limit or WANTS) >= WANTS


def test_a_wait_far_below_the_limit_has_another_cause() -> None:
    node = Node(usage=200 * MIB)
    want = SlotDesire(limit_bytes=240 * MIB)
    node.tick(want)
    node.usage, node.waits = 100 * MIB, 1  # the memory of the whole zone ran out
    assert node.tick(want).limit_bytes == 240 * MIB


def test_a_wait_on_the_way_down_counts_at_what_the_slot_uses() -> None:
    node = Node(usage=200 * MIB)
    node.tick()
    node.waits = 1
    assert node.tick().limit_bytes == 256 * MIB  # a quarter more than 200 MiB, in steps of 8


def test_waits_before_the_first_sample_and_without_a_limit_teach_nothing() -> None:
    node = Node(waits=7)
    assert node.tick().limit_bytes == 40 * MIB
    node.tick(SlotDesire())
    node.waits += 1  # e.g. the group was removed, which the kernel reports in the same way
    node.tick(SlotDesire())
    assert node.tick().limit_bytes == 40 * MIB


def test_a_limit_above_which_usage_stays_gives_way_after_three_seconds() -> None:
    node = Node(usage=300 * MIB)
    limits = [node.tick().limit_bytes for _ in range(40)]
    assert limits[:30] == [40 * MIB] * 30
    assert limits[-1] == 304 * MIB


def test_a_limit_is_kept_while_usage_falls_towards_it_however_slowly() -> None:
    node = Node(usage=300 * MIB)
    for _ in range(80):
        node.usage -= 3 * MIB
        assert node.tick().limit_bytes == 40 * MIB


def test_a_paused_slot_may_stay_above_its_limit() -> None:
    node = Node(usage=300 * MIB, paused=True)
    assert {node.tick().limit_bytes for _ in range(60)} == {40 * MIB}


@pytest.mark.parametrize(
    ("file_mib", "swap_free", "swap_room", "lowest_mib"),
    [
        pytest.param(0, 0, None, 304, id="anonymous, no swap"),
        pytest.param(100, 0, None, 200, id="files can be dropped"),
        pytest.param(0, 200 * MIB, None, 104, id="some swap"),
        pytest.param(0, SWAP, None, 40, id="swap for all"),
        pytest.param(0, None, None, 40, id="swap not known"),
        pytest.param(0, SWAP, 0, 304, id="swap of the node that the slot may not use"),
        pytest.param(100, SWAP, 0, 200, id="its files can be dropped"),
        pytest.param(0, SWAP, 200 * MIB, 104, id="some of the node's swap"),
        pytest.param(0, 200 * MIB, SWAP, 104, id="the node has less than it may use"),
        pytest.param(0, None, 0, 304, id="only its own limit is known"),
    ],
)
def test_no_limit_goes_below_what_cannot_be_reclaimed(
    file_mib: int, swap_free: int | None, swap_room: int | None, lowest_mib: int
) -> None:
    node = Node(usage=300 * MIB, file=file_mib * MIB, swap_free=swap_free, swap_room=swap_room)
    assert node.tick().limit_bytes == lowest_mib * MIB
    reclaimed = node.tick(SlotDesire(reclaim_to_bytes=40 * MIB)).reclaim_to_bytes
    assert reclaimed == lowest_mib * MIB


def test_beside_a_swap_limit_no_limit_goes_below_what_the_swap_leaves() -> None:
    node = Node(usage=300 * MIB, swap_room=100 * MIB)
    want = SlotDesire(limit_bytes=40 * MIB, swap_max_bytes=100 * MIB)
    assert node.tick(want).limit_bytes == 200 * MIB, "who set the limit makes no difference"


@pytest.mark.parametrize("time_s", [math.inf, math.nan])
def test_a_sample_without_a_time_teaches_nothing(time_s: float) -> None:
    node = Node(usage=300 * MIB)
    node.tick()
    before = node.memory.limits[0].workable
    odd = replace(node.sample(), time_s=time_s)
    guard = Guard(budgets=node.budgets, floors_bytes=(FLOOR, FLOOR), tick_period_s=0.1)
    after = guard.review(DesiredState(slots=(TIGHT,)), odd, node.memory).memory
    assert after.limits[0].workable == before


def test_one_tick_that_cannot_be_judged_forgets_no_wait() -> None:
    node = Node()
    node.tick()
    node.waits = 1
    node.tick()
    odd = replace(node.sample(), slots=(), slot_states=())
    guard = Guard(budgets=node.budgets, floors_bytes=(FLOOR, FLOOR), tick_period_s=0.1)
    node.memory = guard.review(DesiredState(slots=(TIGHT,)), odd, node.memory).memory
    assert node.tick().limit_bytes == 56 * MIB


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3), st.integers(0, 600), st.integers(0, 600), st.sampled_from([None, 0])
        ),
        max_size=40,
    )
)
def test_whatever_happens_a_slot_that_waits_at_its_limit_gets_more(
    steps: list[tuple[int, int, int, int | None]],
) -> None:
    node = Node()
    for waits, usage, file, swap_free in itertools.chain(steps, [(1, 0, 0, None)]):
        node.usage, node.file, node.swap_free = usage * MIB, min(file, usage) * MIB, swap_free
        before = node.limit
        node.waits += waits
        node.tick()
        if waits and before is not None and node.usage >= before:
            assert node.limit is None or node.limit > before


@pytest.mark.parametrize(
    ("usage_mib", "file_mib", "dirty_mib", "swap_mib", "least_mib"),
    [
        (200, 190, 0, 0, 10 + GROWTH_MIB),  # a reader of files: its own memory, and room to grow
        (200, 190, 40, 0, 50 + GROWTH_MIB),  # pages that wait for the disk are not reclaimed now
        (200, 10, 0, 0, 190 + GROWTH_MIB),  # sort, where there is no swap
        (200, 10, 0, 2048, 16),  # the same beside ample swap: the floor
        (200, 10, 0, 190 + 128, GROWTH_MIB * 3 // 4),  # a quarter of ample swap is left
        (200, 10, 0, 100, 90 + GROWTH_MIB),
    ],
)
def test_a_hard_limit_leaves_what_cannot_be_reclaimed_and_room_to_grow(
    usage_mib: int, file_mib: int, dirty_mib: int, swap_mib: int, least_mib: int
) -> None:
    node = Node(
        hard=True,
        usage=usage_mib * MIB,
        file=file_mib * MIB,
        dirty=dirty_mib * MIB,
        swap_free=swap_mib * MIB,
    )
    granted = node.tick(SlotDesire(limit_bytes=FLOOR))
    assert granted.limit_bytes is not None
    assert least_mib * MIB <= granted.limit_bytes < (least_mib + 8) * MIB
    if least_mib * MIB > FLOOR:
        assert [change.rule for change in node.changes] == [GuardRule.LOWEST_WORKABLE]


def test_a_hard_limit_follows_a_program_that_allocates() -> None:
    node = Node(hard=True, usage=20 * MIB, file=10 * MIB, swap_free=0)
    limits = []
    for usage_mib in range(20, 320, 60):
        node.usage = usage_mib * MIB
        limits.append(node.tick(SlotDesire(limit_bytes=FLOOR)).limit_bytes)
    assert all(
        limit is not None and limit >= (usage_mib - 10 + GROWTH_MIB) * MIB
        for limit, usage_mib in zip(limits, range(20, 320, 60), strict=True)
    )


@pytest.mark.parametrize("cpus", [1, 2, 64])
def test_a_program_on_every_cpu_stays_below_its_hard_limit_until_the_next_tick(cpus: int) -> None:
    growth = growth_until_next_tick(cpus, 0.1)
    # Reading cached files into new memory, at twice the speed that was measured.
    per_tick = cpus * int(2 * 1.7e9 * 0.1)
    node = Node(hard=True, usage=20 * MIB, file=0, swap_free=0, growth=growth)
    for _ in range(5):
        limit = node.tick(SlotDesire(limit_bytes=FLOOR)).limit_bytes
        node.usage += per_tick
        assert limit is None or limit > node.usage


def test_what_is_paused_may_be_squeezed_under_a_hard_limit_as_under_a_soft_one() -> None:
    node = Node(hard=True, usage=200 * MIB, file=190 * MIB, swap_free=0)
    granted = node.tick(SlotDesire(paused=True, limit_bytes=FLOOR))
    assert (granted.paused, granted.limit_bytes) == (True, FLOOR)
    node.paused, node.limit = True, FLOOR
    thawed = node.tick(SlotDesire(limit_bytes=FLOOR))
    assert thawed.limit_bytes is not None
    assert thawed.limit_bytes >= (10 + GROWTH_MIB) * MIB, "before it runs"


def test_no_policy_and_no_lifted_budget_gets_a_lower_hard_limit() -> None:
    for budgets in (Budgets(lift_budgets=True), Budgets(lift_budgets=True, allow_terminate=True)):
        node = Node(budgets=budgets, hard=True, usage=200 * MIB, file=0, swap_free=0)
        limit = node.tick(SlotDesire(limit_bytes=FLOOR)).limit_bytes
        assert limit is not None
        assert limit >= (200 + GROWTH_MIB) * MIB
