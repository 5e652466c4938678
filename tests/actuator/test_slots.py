"""What the tracker says of a slot's past."""

from __future__ import annotations

import pytest

from stallward.actuator.slots import NEVER_PAUSED_S, SlotFacts, SlotTracker


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


def test_the_reference_is_the_use_when_unlimited_and_running() -> None:
    tracker = SlotTracker(1)
    tracker.update(0.0, [SlotFacts(usage_bytes=1000)])
    tracker.update(0.1, [SlotFacts(usage_bytes=5000, limit_bytes=800)])
    tracker.update(0.2, [SlotFacts(usage_bytes=5000, paused=True)])
    assert tracker.states(0.3)[0].reference_bytes == 1000
    tracker.update(0.4, [SlotFacts(usage_bytes=2000)])
    assert tracker.states(0.4)[0].reference_bytes == 2000


def test_the_reference_forgets_slowly() -> None:
    tracker = SlotTracker(1)
    tracker.update(0.0, [SlotFacts(usage_bytes=1000)])
    for tick in range(1, 601):
        tracker.update(tick * 0.1, [SlotFacts(usage_bytes=100)])
    reference = tracker.states(60.0)[0].reference_bytes
    assert reference == pytest.approx(1000 / 2.718, rel=0.02)


def test_an_unreadable_use_changes_nothing() -> None:
    tracker = SlotTracker(1)
    tracker.update(0.0, [SlotFacts(usage_bytes=1000)])
    tracker.update(5.0, [SlotFacts(usage_bytes=None)])
    assert tracker.states(5.0)[0].reference_bytes == 1000


def test_slots_are_independent() -> None:
    tracker = SlotTracker(2)
    tracker.update(0.0, [SlotFacts(paused=True), SlotFacts()])
    states = tracker.states(1.0)
    assert [state.paused for state in states] == [True, False]
