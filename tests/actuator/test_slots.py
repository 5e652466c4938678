"""What the tracker says of a slot's past."""

from __future__ import annotations

import pytest

from stallward.actuator.slots import NEVER_PAUSED_S, SlotFacts, SlotTracker
from stallward.agent.desired import MIB


def test_a_fresh_slot_was_never_paused() -> None:
    (state,) = SlotTracker(1).states(10.0)
    assert not state.paused
    assert state.since_thaw_s == NEVER_PAUSED_S
    assert state.paused_share == 0.0
    assert state.reference_bytes is None


def test_a_pause_is_timed_and_counted() -> None:
    tracker = SlotTracker(1)
    tracker.update(10.0, [SlotFacts(paused=True)])
    (during,) = tracker.states(13.0)
    assert (during.paused, during.paused_for_s, during.since_thaw_s) == (True, 3.0, 0.0)
    assert during.paused_share == pytest.approx(3 / 60)
    tracker.update(16.0, [SlotFacts()])
    (after,) = tracker.states(18.0)
    assert (after.paused, after.paused_for_s, after.since_thaw_s) == (False, 0.0, 2.0)
    assert after.paused_share == pytest.approx(6 / 60)


def test_the_share_forgets_what_is_older_than_a_minute() -> None:
    tracker = SlotTracker(1)
    tracker.update(0.0, [SlotFacts(paused=True)])
    tracker.update(20.0, [SlotFacts()])
    assert tracker.states(70.0)[0].paused_share == pytest.approx(10 / 60)
    assert tracker.states(81.0)[0].paused_share == 0.0


def test_a_pause_longer_than_the_window_fills_it() -> None:
    tracker = SlotTracker(1)
    tracker.update(0.0, [SlotFacts(paused=True)])
    assert tracker.states(200.0)[0].paused_share == 1.0


def _started(held_bytes: int = 300 * MIB) -> SlotTracker:
    """A tracker of one group that has run for five seconds."""
    tracker = SlotTracker(1)
    for second in range(6):
        tracker.update(float(second), [SlotFacts(usage_bytes=held_bytes)])
    return tracker


def _reference(tracker: SlotTracker) -> int | None:
    return tracker.states(1e3)[0].reference_bytes


def test_a_group_that_holds_next_to_nothing_has_no_reference() -> None:
    assert _reference(_started(3 * MIB)) is None
    assert _reference(_started(5 * MIB)) == 5 * MIB


def test_a_limit_set_while_a_group_starts_follows_what_it_swaps() -> None:
    tracker = SlotTracker(1)
    for second in range(10):
        fact = SlotFacts(usage_bytes=32 * MIB, swap_bytes=20 * second * MIB, limit_bytes=32 * MIB)
        tracker.update(float(second), [fact])
    assert _reference(tracker) == 212 * MIB


def test_the_reference_counts_what_is_in_swap() -> None:
    tracker = _started()
    tracker.update(6.0, [SlotFacts(usage_bytes=100 * MIB, swap_bytes=350 * MIB)])
    assert _reference(tracker) == 450 * MIB


def test_a_limited_group_can_only_raise_its_reference() -> None:
    tracker = _started()
    for second in range(6, 66):
        tracker.update(float(second), [SlotFacts(usage_bytes=50 * MIB, limit_bytes=50 * MIB)])
    assert _reference(tracker) == 300 * MIB, "being limited forgets nothing"
    fact = SlotFacts(usage_bytes=50 * MIB, swap_bytes=350 * MIB, limit_bytes=50 * MIB)
    tracker.update(66.0, [fact])
    assert _reference(tracker) == 400 * MIB
    tracker.update(67.0, [SlotFacts(usage_bytes=60 * MIB)])
    assert _reference(tracker) == pytest.approx(400 * MIB, rel=0.02), "one free second is decay"


def test_a_paused_group_keeps_its_reference() -> None:
    tracker = _started()
    tracker.update(6.0, [SlotFacts(usage_bytes=500 * MIB, paused=True)])
    tracker.update(600.0, [SlotFacts(usage_bytes=10 * MIB, paused=True)])
    assert _reference(tracker) == 300 * MIB


def test_the_reference_forgets_slowly() -> None:
    tracker = _started()
    for tick in range(601):
        tracker.update(5.0 + tick * 0.1, [SlotFacts(usage_bytes=10 * MIB)])
    assert _reference(tracker) == pytest.approx(300 * MIB / 2.718, rel=0.02)


def test_an_unreadable_use_changes_nothing() -> None:
    tracker = _started()
    tracker.update(600.0, [SlotFacts(usage_bytes=None)])
    assert _reference(tracker) == 300 * MIB


def test_slots_are_independent() -> None:
    tracker = SlotTracker(2)
    tracker.update(0.0, [SlotFacts(paused=True), SlotFacts()])
    states = tracker.states(1.0)
    assert [state.paused for state in states] == [True, False]
