"""Tests that a limit under which the kernel killed is lifted, and none is granted for a while."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.guard.changes import GuardChange, GuardRule, Unit
from stallward.actuator.guard.guard import Guard, GuardMemory
from stallward.agent.desired import MIB, DesiredState, SlotDesire
from stallward.agent.sample import ProcessSample, Sample, SlotState
from stallward.agent.testing import make_sample

LIMIT = 240 * MIB
LIMITED = SlotDesire(limit_bytes=LIMIT)
WAIT_S = 600.0


@dataclass
class Node:
    """A node with one slot behind a guard; a granted state is in force at the next tick."""

    guard: Guard = field(
        default_factory=lambda: Guard(
            budgets=Budgets(), floors_bytes=(16 * MIB,) * 2, tick_period_s=0.1
        )
    )
    memory: GuardMemory = field(default_factory=GuardMemory)
    time_s: float = 1000.0
    limit: int | None = None
    changes: tuple[GuardChange, ...] = ()

    def sample(self, kills: int | None) -> Sample:
        state = SlotState(reference_bytes=300 * MIB, limit_bytes=self.limit, since_thaw_s=60.0)
        sample = make_sample()
        slot = replace(sample.slots[0], oom_kills=kills)
        return replace(
            sample,
            time_s=self.time_s,
            slots=(slot, *sample.slots[1:]),
            slot_states=(state, *sample.slot_states[1:]),
        )

    def tick(self, want: SlotDesire, kills: int | None, after_s: float = 0.1) -> SlotDesire:
        self.time_s += after_s
        return self.review(want, self.sample(kills))

    def review(self, want: SlotDesire, sample: Sample) -> SlotDesire:
        verdict = self.guard.review(DesiredState(slots=(want,)), sample, self.memory)
        self.memory, self.changes = verdict.memory, verdict.changes
        granted = verdict.granted.slots[0]
        self.limit = granted.limit_bytes
        return granted


@pytest.mark.parametrize("unknown_ticks", [0, 3])
def test_a_limit_that_killed_is_lifted_for_ten_minutes(unknown_ticks: int) -> None:
    node = Node()
    assert node.tick(LIMITED, kills=2).limit_bytes == LIMIT
    for _ in range(unknown_ticks):
        assert node.tick(LIMITED, kills=None).limit_bytes == LIMIT
    assert node.tick(LIMITED, kills=3).limit_bytes is None
    (change,) = node.changes
    assert (change.rule, change.found, change.unit) == (GuardRule.LIMIT_KILLED, 0.0, Unit.SECONDS)
    assert node.tick(LIMITED, kills=3, after_s=WAIT_S - 1.0).limit_bytes is None
    assert node.tick(LIMITED, kills=3, after_s=1.1).limit_bytes == LIMIT


@pytest.mark.parametrize(
    "wish",
    [
        SlotDesire(hard_limit_bytes=LIMIT),
        SlotDesire(swap_max_bytes=LIMIT),
        SlotDesire(reclaim_to_bytes=LIMIT),
    ],
)
def test_no_other_lever_takes_memory_after_a_kill_but_a_pause_may(wish: SlotDesire) -> None:
    node = Node()
    node.tick(LIMITED, kills=0)
    assert node.tick(wish, kills=1) == SlotDesire()
    assert node.tick(replace(wish, paused=True), kills=1) == SlotDesire(paused=True)


@pytest.mark.parametrize(("since_s", "blamed"), [(2.0, True), (5.0, False)])
def test_a_kill_long_after_a_limit_is_not_blamed_on_it(since_s: float, blamed: bool) -> None:
    node = Node()
    node.tick(LIMITED, kills=0)
    node.tick(SlotDesire(), kills=0)
    node.tick(SlotDesire(), kills=1, after_s=since_s)
    assert node.tick(LIMITED, kills=1).limit_bytes == (None if blamed else LIMIT)


def test_a_kill_without_a_limit_forbids_nothing() -> None:
    node = Node()
    node.tick(SlotDesire(), kills=0)
    node.tick(SlotDesire(), kills=1)
    assert node.tick(LIMITED, kills=1).limit_bytes == LIMIT


@pytest.mark.parametrize("case", ["a slot is missing", "a protected process came in"])
def test_one_tick_that_cannot_be_judged_forgets_no_kill(case: str) -> None:
    node = Node()
    node.tick(LIMITED, kills=0)
    node.tick(LIMITED, kills=1)
    odd = node.sample(kills=1)
    if case == "a slot is missing":
        odd = replace(odd, slots=odd.slots[:1], slot_states=odd.slot_states[:1])
    else:
        pid_1 = ProcessSample(pid=1, start_time_ticks=1, slot=0, oom_score=0, stopped=False)
        odd = replace(odd, processes=(pid_1,))
    assert node.review(LIMITED, odd) == SlotDesire()
    assert GuardRule.LIMIT_KILLED not in {change.rule for change in node.changes}
    assert node.tick(LIMITED, kills=1).limit_bytes is None


def test_where_terminating_is_allowed_a_limit_that_killed_stays() -> None:
    node = Node()
    node.guard = replace(node.guard, budgets=Budgets(allow_terminate=True))
    node.tick(LIMITED, kills=0)
    assert node.tick(LIMITED, kills=1).limit_bytes == LIMIT
