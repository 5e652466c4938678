"""Tests of the history that the tracker keeps of each slot."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallward.actuator.guard.slot_tracker import NEVER_PAUSED_S, SlotFacts, SlotTracker
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


def test_pauses_count_from_before_the_levers_moved_until_after() -> None:
    tracker = SlotTracker(1)
    tracker.update(10.0, [SlotFacts(paused=True)], 10.5)
    assert tracker.states(11.0)[0].paused_for_s == 1.0
    tracker.update(12.0, [SlotFacts()], 12.5)
    (state,) = tracker.states(13.0)
    assert state.since_thaw_s == 0.5
    assert state.paused_share == pytest.approx(2.5 / 60)


def test_times_that_go_back_or_are_none_count_as_the_latest() -> None:
    tracker = SlotTracker(1)
    tracker.update(10.0, [SlotFacts(paused=True)])
    tracker.update(4.0, [SlotFacts()], 3.0)
    assert tracker.states(float("nan"))[0].since_thaw_s == 0.0
    assert tracker.states(11.0)[0].since_thaw_s == 1.0
    assert tracker.states(11.0)[0].paused_share == 0.0


@given(
    st.lists(
        st.tuples(st.booleans(), st.sampled_from([0.0, 0.004, 0.1, 0.5, 7.0, 45.0, 59.9, 3600.0])),
        max_size=60,
    )
)
def test_the_share_is_that_of_the_last_minute_whatever_came_before(
    steps: list[tuple[bool, float]],
) -> None:
    tracker, time_s, pauses = SlotTracker(1), 100.0, []
    since_s: float | None = None
    for paused, gap_s in steps:
        tracker.update(time_s, [SlotFacts(paused=paused)])
        if paused and since_s is None:
            since_s = time_s
        elif not paused and since_s is not None:
            pauses.append((since_s, time_s))
            since_s = None
        time_s += gap_s
        open_pause = [] if since_s is None else [(since_s, time_s)]
        spans = (min(e, time_s) - max(b, time_s - 60) for b, e in [*pauses, *open_pause])
        share = sum(max(span, 0.0) for span in spans) / 60
        assert tracker.states(time_s)[0].paused_share == pytest.approx(share, abs=1e-9)


def test_after_a_restart_the_worst_is_assumed() -> None:
    tracker = SlotTracker.after_restart(100.0, [48.0, 48.0, 0.0], [False, True])
    thawed, paused, fresh = tracker.states(100.0)
    assert (thawed.paused, thawed.since_thaw_s) == (False, 0.0)
    assert thawed.paused_share == pytest.approx(0.8)
    assert (paused.paused, paused.paused_for_s, paused.paused_share) == (True, 1e6, 1.0)
    assert (fresh.since_thaw_s, fresh.paused_share) == (0.0, 0.0)
    assert tracker.states(112.0)[0].paused_share == pytest.approx(0.8), "the latest, so it stays"
    assert tracker.states(130.0)[0].paused_share == pytest.approx(0.5)
