"""The growth of counters: what is added, and what no rate may be made of."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallward.actuator.work.counter import MAX_VALUE, WorkCounter
from stallward.agent.sample import WorkFault


def test_growth_and_the_time_of_it_are_added() -> None:
    counter = WorkCounter()
    for time_s, value in ((1.0, 100.0), (2.0, 130.0), (4.0, 130.0), (5.0, 131.5)):
        counter.take({"": value}, time_s)
        assert counter.fault is WorkFault.NONE
    assert (counter.units, counter.known_s, counter.read_s) == (31.5, 4.0, 5.0)


def test_what_a_counter_shows_at_first_is_no_work() -> None:
    counter = WorkCounter()
    assert counter.fault is WorkFault.NOT_READ
    counter.take({"": 1e12}, 1.0)
    assert (counter.units, counter.known_s) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (3.0, WorkFault.FELL),
        (0.0, WorkFault.FELL),
        (-1.0, WorkFault.NEGATIVE),
        (math.nan, WorkFault.NOT_FINITE),
        (math.inf, WorkFault.NOT_FINITE),
        (2.0 * MAX_VALUE, WorkFault.TOO_LARGE),
    ],
)
def test_a_span_over_a_broken_value_is_neither_work_nor_time(
    value: float, fault: WorkFault
) -> None:
    counter = WorkCounter()
    counter.take({"": 10.0}, 1.0)
    counter.take({"": 20.0}, 2.0)
    counter.take({"": value}, 3.0)
    assert counter.fault is fault
    counter.take({"": 50.0}, 4.0)
    counter.take({"": 60.0}, 5.0)
    after_fall = fault is WorkFault.FELL  # the span after a fall is known again
    assert counter.units == 20.0 + (50.0 - value if after_fall else 0.0)
    assert counter.known_s == 2.0 + after_fall


@pytest.mark.parametrize(
    ("fault", "units", "known_s"), [(WorkFault.LATE, 30.0, 3.0), (WorkFault.ABSENT, 10.0, 1.0)]
)
def test_a_late_reading_is_made_up_for_and_a_counter_that_vanished_is_not(
    fault: WorkFault, units: float, known_s: float
) -> None:
    counter = WorkCounter()
    counter.take({"": 10.0}, 1.0)
    counter.miss(fault)
    counter.take({"": 30.0}, 3.0)
    counter.take({"": 40.0}, 4.0)
    assert (counter.units, counter.known_s) == (units, known_s)


def test_other_series_than_before_give_no_rate() -> None:
    counter = WorkCounter()
    counter.take({"a": 1.0, "b": 5.0}, 1.0)
    counter.take({"a": 2.0, "b": 7.0}, 2.0)
    assert counter.units == 3.0
    counter.take({"a": 3.0, "b": 8.0, "c": 1e6}, 3.0)
    assert (counter.units, counter.fault) == (3.0, WorkFault.CHANGED)
    counter.take({"a": 4.0, "b": 4.0, "c": 2e6}, 4.0)
    assert (counter.units, counter.fault) == (3.0, WorkFault.FELL), "the growth of c hides nothing"


@given(
    st.lists(
        st.one_of(
            st.floats(allow_nan=True, allow_infinity=True),
            st.sampled_from([WorkFault.LATE, WorkFault.ABSENT, WorkFault.NO_NUMBER]),
        )
    )
)
def test_sums_only_grow_whatever_is_read(readings: list[float | WorkFault]) -> None:
    counter = WorkCounter()
    for second, reading in enumerate(readings):
        before = counter.units, counter.known_s
        if isinstance(reading, WorkFault):
            counter.miss(reading)
        else:
            counter.take({"": reading}, float(second))
        assert math.isfinite(counter.units)
        assert counter.units >= before[0]
        assert before[1] <= counter.known_s <= second
