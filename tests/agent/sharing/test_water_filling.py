"""Water-filling: max-min fairness under floors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallward.agent.sharing.water_filling import water_fill

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


def test_no_memory_and_no_groups() -> None:
    assert water_fill(0.0, [50.0], [16.0]) == ([16.0], 0.0)
    assert water_fill(100.0, [], []) == ([], 100.0)


@given(AMOUNTS, st.lists(AMOUNTS, min_size=1, max_size=6))
def test_the_shares_and_the_rest_are_the_room(room: float, wants: list[float]) -> None:
    shares, left = water_fill(room, wants, [0.0] * len(wants))
    assert sum(shares) + left == pytest.approx(room, rel=1e-9, abs=1e-3)
    for share, want in zip(shares, wants, strict=True):
        assert 0.0 <= share <= want
    unfilled = [
        share for share, want in zip(shares, wants, strict=True) if share < want * (1 - 1e-9)
    ]
    # Whoever lacks something has as much as anybody, and then nothing is left over.
    for share in unfilled:
        assert share == pytest.approx(max(shares), rel=1e-9, abs=1e-3)
        assert left == pytest.approx(0.0, abs=1e-3)
