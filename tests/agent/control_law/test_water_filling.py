"""Water-filling: max-min fairness under floors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallward.agent.control_law.water_filling import water_fill

AMOUNTS = st.floats(0.0, 1e10)


def test_nobody_gets_more_than_it_wants_and_the_others_share_the_rest() -> None:
    shares, left = water_fill(300.0, [40.0, 200.0, 500.0], [0.0, 0.0, 0.0])
    assert shares == [40.0, 130.0, 130.0]
    assert left == 0.0


def test_what_nobody_wants_is_left_over() -> None:
    shares, left = water_fill(300.0, [40.0, 60.0], [0.0, 0.0])
    assert shares == [40.0, 60.0]
    assert left == 200.0


def test_nobody_gets_less_than_its_floor() -> None:
    shares, left = water_fill(100.0, [80.0, 400.0], [16.0, 90.0])
    assert shares == [50.0, 90.0]
    assert left == 0.0


def test_weights_divide_what_is_wanted_in_proportion() -> None:
    shares, left = water_fill(300.0, [500.0, 500.0], [0.0, 0.0], [0.5, 1.0])
    assert shares == [pytest.approx(100.0), pytest.approx(200.0)]
    shares, left = water_fill(300.0, [500.0, 150.0], [0.0, 0.0], [0.5, 1.0])
    assert shares == [pytest.approx(150.0), pytest.approx(150.0)]
    assert left == pytest.approx(0.0)


def test_a_large_want_of_a_heavy_one_is_met_before_a_small_one_of_a_light_one() -> None:
    assert water_fill(700.0, [500.0] * 3, [0.0] * 3, [1.0, 2.0, 4.0]) == ([100.0, 200.0, 400.0], 0)
    assert water_fill(420.0, [100.0, 300.0], [0.0, 0.0], [1.0, 6.0]) == ([100.0, 300.0], 20.0)


def test_no_memory_and_no_groups() -> None:
    assert water_fill(0.0, [50.0], [16.0]) == ([16.0], 0.0)
    assert water_fill(100.0, [], []) == ([], 100.0)


@given(AMOUNTS, st.lists(st.tuples(AMOUNTS, st.floats(0.1, 10.0)), min_size=1, max_size=6))
def test_the_shares_and_the_rest_are_the_room(
    room: float, wants_and_weights: list[tuple[float, float]]
) -> None:
    wants, weights = ([pair[k] for pair in wants_and_weights] for k in (0, 1))
    shares, left = water_fill(room, wants, [0.0] * len(wants), weights)
    assert sum(shares) + left == pytest.approx(room, rel=1e-9, abs=1e-3)
    for share, want in zip(shares, wants, strict=True):
        assert 0.0 <= share <= want
    per_weight = [share / weight for share, weight in zip(shares, weights, strict=True)]
    # Whoever lacks something has as much for its weight as anybody, and nothing is left over.
    for share, want, mine in zip(shares, wants, per_weight, strict=True):
        if share < want * (1 - 1e-9):
            assert mine == pytest.approx(max(per_weight), rel=1e-9, abs=1e-2)
            assert left == pytest.approx(0.0, abs=1e-3)
