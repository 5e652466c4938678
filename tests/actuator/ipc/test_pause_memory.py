"""The record of pauses that a loop leaves, wherever it dies, and how the next loop uses it."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stallward.actuator.guard.budgets import Budgets
from stallward.actuator.guard.guard import Guard, GuardMemory
from stallward.actuator.guard.slot_tracker import PauseHistory, SlotFacts, SlotTracker
from stallward.actuator.ipc.shared_memory import (
    MAX_PAUSES,
    SLOT_BYTES,
    PauseMemory,
    kept_since,
    longest_pauses,
)
from stallward.agent.desired import DesiredState, SlotDesire
from stallward.agent.testing import make_sample

SLOTS = 2
PERIOD_S = 0.1
BUDGETS = Budgets(max_pause_s=2.0, max_pause_share=0.2, min_run_s=0.3, late_allowance_s=0.0)
WORST_S = BUDGETS.max_pause_share * 60.0
PAUSE = DesiredState(slots=(SlotDesire(paused=True),) * SLOTS)
STAGES = ("between", "before", "after")


class DiedError(Exception):
    """The loop was killed."""


class MortalMemory(bytearray):
    """Memory whose writer may die in the middle of a write."""

    left: int | None = None
    """The number of bytes that are still written before the writer dies."""

    def __setitem__(self, where: Any, data: Any) -> None:
        if self.left is None:
            super().__setitem__(where, data)
            return
        kept = min(self.left, len(data))
        super().__setitem__(slice(where.start, where.start + kept), data[:kept])
        self.left -= kept
        if kept < len(data):
            raise DiedError


@dataclass
class Node:
    """Loops that pause as much as the guard allows, one after the other, and the real pauses."""

    now_s: float = 1000.0
    memory: MortalMemory = field(default_factory=lambda: MortalMemory(SLOTS * SLOT_BYTES))
    frozen_s: float | None = None
    pauses: list[tuple[float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.guard = Guard(budgets=BUDGETS, floors_bytes=(1,) * SLOTS, tick_period_s=PERIOD_S)
        self.start(after_restart=False)

    def start(self, *, after_restart: bool) -> None:
        keeper = PauseMemory(self.memory, SLOTS)
        self.tracker = SlotTracker(SLOTS)
        if after_restart:
            worst = [WORST_S] * SLOTS
            self.tracker = SlotTracker.after_restart(self.now_s, worst, (), keeper.load())
        self.keeper = keeper
        self.keeper.note(self.tracker)

    def tick(self, dies: str = "") -> None:
        """Run one tick in the order of the loop and its node."""
        self.now_s += PERIOD_S
        states = self.tracker.states(self.now_s)
        sample = replace(make_sample(), time_s=self.now_s, slot_states=states)
        granted = self.guard.review(PAUSE, sample, GuardMemory()).granted
        paused = granted.slots[0].paused
        self.tracker.begin(self.now_s, range(SLOTS) if paused else ())
        self.keeper.note(self.tracker)
        if dies == "before":
            raise DiedError
        self.freeze(paused)
        if dies == "after":
            raise DiedError
        self.tracker.update(self.now_s, [SlotFacts(paused=paused)] * SLOTS)
        self.keeper.note(self.tracker)

    def freeze(self, paused: bool) -> None:
        if paused and self.frozen_s is None:
            self.frozen_s = self.now_s
        elif not paused and self.frozen_s is not None:
            self.pauses.append((self.frozen_s, self.now_s))
            self.frozen_s = None

    def live_and_die(self, ticks: int, stage: str, left: int | None, gap_s: float) -> None:
        """Run a loop until it dies; then thaw and start the next one, as the guardian does."""
        for _ in range(ticks):
            self.tick()
        self.memory.left = left
        with contextlib.suppress(DiedError):
            if stage != "between":
                self.tick(stage)
        self.memory.left = None
        self.freeze(False)
        self.now_s += gap_s
        self.start(after_restart=True)

    def check(self) -> None:
        for (_, before_s), (begin_s, _) in zip(self.pauses, self.pauses[1:], strict=False):
            assert begin_s - before_s >= BUDGETS.min_run_s - 1e-6
        for begin_s, end_s in self.pauses:
            assert end_s - begin_s <= BUDGETS.max_pause_s + 1e-6
            spans = (min(e, end_s) - max(b, end_s - 60.0) for b, e in self.pauses)
            assert sum(max(span, 0.0) for span in spans) <= WORST_S + 1e-6


lives = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 4, 5, 9, 30]),
        st.sampled_from(STAGES),
        st.none() | st.integers(0, 300),
        st.sampled_from([0.0, 0.05, 0.3]),
    ),
    min_size=1,
    max_size=60,
)


@pytest.mark.slow
@given(lives=lives)
@example(lives=[(9, "between", None, 0.3)] * 60)
@example(lives=[(9, "after", None, 0.05)] * 60)
@example(lives=[(5, "after", 40, 0.0)] * 60)
@example(lives=[(5, "before", 60, 0.0)] * 60)
@settings(deadline=None, max_examples=min(60, settings().max_examples))
def test_no_sequence_of_restarts_exceeds_the_budgets(
    lives: list[tuple[int, str, int | None, float]],
) -> None:
    node = Node()
    for life in lives:
        node.live_and_die(*life)
    for _ in range(100):
        node.tick()
    node.freeze(False)
    node.check()


def test_a_loop_that_knows_the_past_pauses_soon() -> None:
    node = Node()
    node.live_and_die(10, "after", None, 0.2)
    started_s = node.now_s
    while node.frozen_s is None:
        node.tick()
    assert node.now_s - started_s <= BUDGETS.min_run_s + 2 * PERIOD_S
    node.memory = MortalMemory(SLOTS * SLOT_BYTES)  # nothing is known of it
    node.live_and_die(0, "between", None, 0.2)
    node.freeze(False)
    started_s = node.now_s
    for _ in range(600):
        node.tick()
    begin_s = next(begin_s for begin_s, _ in node.pauses if begin_s > started_s)
    assert begin_s - started_s > 40.0, "the worst is assumed"


def test_an_unwritten_or_torn_record_is_not_known() -> None:
    memory = bytearray(SLOTS * SLOT_BYTES)
    assert PauseMemory(memory, SLOTS).load() == (None, None)
    tracker = SlotTracker(SLOTS)
    PauseMemory(memory, SLOTS).note(tracker)
    assert PauseMemory(memory, SLOTS).load() == (PauseHistory(), PauseHistory())
    tracker.begin(5.0, [1])
    keeper = PauseMemory(memory, SLOTS)
    keeper.note(tracker)
    assert keeper.load() == (PauseHistory(), PauseHistory(since_s=5.0))
    memory[SLOT_BYTES:] = b"\xff" * SLOT_BYTES
    assert PauseMemory(memory, SLOTS).load() == (PauseHistory(), None)


@pytest.mark.parametrize("byte", range(0, 48, 5))
def test_a_torn_record_leaves_the_one_before(byte: int) -> None:
    memory = bytearray(SLOT_BYTES)
    keeper, tracker = PauseMemory(memory, 1), SlotTracker(1)
    tracker.begin(5.0, [0])
    keeper.note(tracker)
    before = bytes(memory)
    tracker.update(6.0, [SlotFacts()])
    keeper.note(tracker)
    assert keeper.load() == (PauseHistory(thawed_s=6.0, pauses=((5.0, 6.0),)),)
    changed = [i for i in range(SLOT_BYTES) if memory[i] != before[i]]
    memory[changed[0] + byte] ^= 0x10
    assert PauseMemory(memory, 1).load() == (PauseHistory(since_s=5.0),)


def test_many_pauses_are_taken_together_and_none_is_lost() -> None:
    memory = bytearray(SLOT_BYTES)
    keeper, tracker = PauseMemory(memory, 1), SlotTracker(1)
    for number in range(MAX_PAUSES + 20):
        tracker.begin(100.0 + 0.2 * number, [0])
        tracker.update(100.1 + 0.2 * number, [SlotFacts()])
        keeper.note(tracker)
    (known,) = keeper.load()
    assert known is not None
    assert len(known.pauses) == MAX_PAUSES
    assert known.pauses[0][0] == 100.0
    restarted = SlotTracker.after_restart(124.0, [0.0], (), [known])
    assert restarted.states(124.0)[0].paused_share >= tracker.states(124.0)[0].paused_share


def test_a_restarted_loop_continues_the_pauses_of_the_last() -> None:
    ended = PauseHistory(thawed_s=90.0, pauses=((80.0, 90.0),))
    paused = PauseHistory(since_s=97.0, pauses=((80.0, 90.0),))
    histories = [ended, paused, paused, ended]
    still = [False, False, True, True]
    tracker = SlotTracker.after_restart(100.0, [48.0] * 4, still, histories)
    runs, thawed, goes_on, theirs = tracker.states(100.0)
    assert (runs.paused, runs.since_thaw_s, runs.paused_share) == (False, 10.0, 10 / 60)
    assert (thawed.paused, thawed.since_thaw_s) == (False, 0.0)
    assert thawed.paused_share == pytest.approx(13 / 60)
    assert (goes_on.paused, goes_on.paused_for_s) == (True, 3.0)
    assert (theirs.paused, theirs.paused_share) == (True, 1.0), "nobody knows since when"


def test_the_guardian_sees_since_when_each_slot_is_kept_paused() -> None:
    memory = bytearray(SLOTS * SLOT_BYTES)
    keeper = PauseMemory(memory, SLOTS)
    keeper.keep(5.0, [1])
    keeper.keep_only([1])
    keeper.keep(6.0, [0, 1])
    assert kept_since(memoryview(memory), SLOTS) == (6.0, 5.0)
    tracker = SlotTracker(SLOTS)
    for number in range(MAX_PAUSES + 20):  # the fullest record leaves room for it
        tracker.begin(100.0 + number, range(SLOTS))
        tracker.update(100.5 + number, [SlotFacts()] * SLOTS)
        keeper.note(tracker)
    assert kept_since(memoryview(memory), SLOTS) == (6.0, 5.0)
    keeper.keep_only([0])
    assert kept_since(memoryview(memory), SLOTS) == (6.0, 0.0)
    restarted = PauseMemory(memory, SLOTS)
    restarted.keep_only(())
    assert kept_since(memoryview(memory), SLOTS) == (0.0, 0.0)


def test_the_guardian_sees_how_long_the_pod_of_each_slot_may_be_paused() -> None:
    """What holds when a pause begins holds until it ends: else the guardian could kill a loop
    before the tick at which it ends the pause.
    """
    memory = bytearray(SLOTS * SLOT_BYTES)
    keeper = PauseMemory(memory, SLOTS)
    assert longest_pauses(memoryview(memory), SLOTS) == (math.inf, math.inf)
    keeper.keep(5.0, [1], [None, 0.5])
    keeper.keep(5.1, [1], [None, 0.1])
    assert longest_pauses(memoryview(memory), SLOTS) == (math.inf, 0.5)
    keeper.keep_only(())
    keeper.keep(6.0, [0, 1], [0.0, None])
    never_s, no_bound_s = longest_pauses(memoryview(memory), SLOTS)
    assert 0.0 < never_s < 0.01
    assert no_bound_s == math.inf
    assert kept_since(memoryview(memory), SLOTS) == (6.0, 6.0)
