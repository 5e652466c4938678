"""Prices follow violations, within bounds that the score sets."""

from __future__ import annotations

import numpy as np
import pytest

from stallward.env.objective import PENALTIES
from stallward.training.lagrangian import PriceRange, updated_prices

ALLOWED = np.array([[0.01], [0.05], [0.01]])
BOUNDS = PriceRange()


@pytest.mark.parametrize(("beyond", "sign"), [(0.05, 1.0), (-0.005, -1.0), (0.0, 0.0)])
def test_a_price_rises_with_too_many_violations_and_falls_with_few(
    beyond: float, sign: float
) -> None:
    before = np.full((3, 1), 1.0)
    after = updated_prices(before, ALLOWED + beyond, ALLOWED, 0.1, BOUNDS)
    np.testing.assert_array_equal(np.sign(after - before), sign)


def test_prices_stay_within_their_bounds_and_unknown_violations_change_none() -> None:
    prices = np.full((3, 1), 1.0)
    suffered = np.array([[0.5], [np.nan], [0.5]])
    for _ in range(200):
        prices = updated_prices(prices, suffered, ALLOWED, 0.1, BOUNDS)
    assert prices[:, 0].tolist() == [BOUNDS.most[0], 1.0, BOUNDS.most[2]]
    for _ in range(200):
        prices = updated_prices(prices, 0.0 * ALLOWED, ALLOWED, 0.1, BOUNDS)
    assert (prices == BOUNDS.least).all()


def test_no_price_is_far_beyond_the_penalties_of_the_score() -> None:
    assert np.array(BOUNDS.most)[1:] == pytest.approx(2.0 * PENALTIES[1:])
