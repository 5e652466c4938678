"""The demand of the protected application."""

from __future__ import annotations

import math

import pytest

from stallward.agent.desired import MIB
from stallward.agent.observation.demand import Demand
from stallward.agent.sample import GroupSample


def app(memory_mib: float, swap_mib: float = 0.0, needs_mib: float | None = None) -> GroupSample:
    return GroupSample(
        name="app",
        memory_usage_bytes=int(memory_mib * MIB),
        swap_bytes=int(swap_mib * MIB),
        working_set_bytes=None if needs_mib is None else int(needs_mib * MIB),
    )


def test_swapped_pages_count_like_those_in_memory() -> None:
    assert Demand(600.0).update(app(100, swap_mib=60), 0.1) == 160 * MIB


def test_file_pages_that_were_taken_are_seen_by_the_working_set() -> None:
    assert Demand(600.0).update(app(100, needs_mib=180), 0.1) == 180 * MIB


def test_a_smaller_working_set_does_not_lower_it() -> None:
    """Pages that are held are not taken from the application on an estimate."""
    assert Demand(600.0).update(app(100, needs_mib=50), 0.1) == 100 * MIB


def test_it_stays_while_pages_are_taken_and_falls_slowly() -> None:
    demand = Demand(600.0)
    demand.update(app(200), 0.1)
    for _ in range(600):
        now = demand.update(app(50), 0.1)
    assert now == pytest.approx(200 * MIB * math.exp(-0.1), rel=1e-3)


def test_it_grows_at_once() -> None:
    demand = Demand(600.0)
    demand.update(app(50), 0.1)
    assert demand.update(app(300), 0.1) == 300 * MIB


def test_it_begins_with_what_was_measured_before() -> None:
    assert Demand(600.0, start_bytes=250 * MIB).update(app(40), 0.0) == 250 * MIB


def test_an_application_that_cannot_be_read_keeps_its_demand() -> None:
    demand = Demand(600.0)
    demand.update(app(200), 0.1)
    assert demand.update(GroupSample(name="app"), 60.0) == 200 * MIB
    assert demand.update(GroupSample(name="app", working_set_bytes=0), 60.0) == 200 * MIB


def test_one_of_usage_and_swap_is_enough_to_follow_it() -> None:
    demand = Demand(600.0, start_bytes=300 * MIB)
    assert demand.update(GroupSample(name="app", swap_bytes=20 * MIB), 60.0) == 270 * MIB
    assert demand.update(GroupSample(name="app", memory_usage_bytes=280 * MIB), 0.1) == 280 * MIB


def test_a_long_gap_forgets_everything_and_no_more() -> None:
    demand = Demand(10.0)
    demand.update(app(200), 0.1)
    assert demand.update(app(30), 1000.0) == 30 * MIB
