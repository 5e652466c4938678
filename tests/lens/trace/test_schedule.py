"""The schedule of a trace does not drift, and counts what is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallward.lens.trace.run import Schedule


def test_a_tick_in_time_is_followed_by_the_next() -> None:
    schedule = Schedule(period_s=0.1, start_s=100.0)
    due = []
    for late_s in (0.0, 0.05, 0.09):
        due.append(schedule.due_s)
        schedule.advance(schedule.due_s + late_s)
    assert due == pytest.approx([100.0, 100.1, 100.2])
    assert (schedule.number, schedule.lost) == (4, 0)


def test_a_reading_that_takes_three_periods_loses_two_ticks_and_keeps_the_beat() -> None:
    schedule = Schedule(period_s=1.0, start_s=50.0)
    schedule.advance(52.5)
    assert (schedule.number, schedule.due_s, schedule.lost) == (4, 53.0, 2)


def test_a_tick_that_is_due_right_now_is_not_lost() -> None:
    schedule = Schedule(period_s=1.0, start_s=50.0)
    schedule.advance(52.0)
    assert (schedule.number, schedule.due_s, schedule.lost) == (3, 52.0, 1)


@given(
    period_s=st.floats(0.001, 60.0),
    readings_s=st.lists(st.floats(0.0, 5.0), min_size=1, max_size=30),
)
def test_every_tick_is_read_or_counted_as_lost(period_s: float, readings_s: list[float]) -> None:
    schedule = Schedule(period_s=period_s, start_s=1e5)
    for read, reading_s in enumerate(readings_s, start=1):
        now_s = schedule.due_s + reading_s
        before = schedule.number
        schedule.advance(now_s)
        assert schedule.number > before
        assert schedule.due_s >= now_s - 1e-6
        assert schedule.due_s - period_s < now_s + 1e-6 or schedule.number == before + 1
        assert read + schedule.lost == schedule.number - 1


def test_no_tick_is_due_or_lost_after_the_end() -> None:
    schedule = Schedule(period_s=0.1, start_s=50.0, until_s=50.3)
    numbers = []
    while not schedule.over:
        numbers.append(schedule.number)
        schedule.advance(schedule.due_s + 0.15)
    assert numbers == [1, 3]
    assert schedule.lost == 1
    assert Schedule(period_s=0.1, start_s=50.0, until_s=50.0).over
