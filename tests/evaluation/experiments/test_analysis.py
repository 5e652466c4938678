"""What an experiment of paired blocks showed."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.stats import fisher_exact

from stallward.evaluation.errors import MeasureError
from stallward.evaluation.experiments.analysis import holm, lost_blocks_p, paired_ratio


def blocks(ratio: float, pairs: int, *, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Values of both arms: what both share varies much, what differs between them little."""
    rng = np.random.default_rng(seed)
    shared = 50.0 * np.exp(rng.normal(0.0, 1.0, pairs))
    one, other = np.exp(rng.normal(0.0, 0.1, size=(2, pairs)))
    return shared * one, ratio * shared * other


def test_an_effect_is_found_although_the_load_changes_much_more() -> None:
    result = paired_ratio(*blocks(1.3, 20))
    assert result.ratio.value == pytest.approx(1.3, rel=0.08)
    assert result.ratio.low is not None
    assert result.always.low is not None
    assert 1.0 < result.always.low < result.ratio.low
    assert result.p_value is not None
    assert result.p_value < 0.001
    assert (result.pairs, result.left_out_pairs) == (20, 0)


def test_without_an_effect_the_p_value_is_small_as_seldom_as_it_says() -> None:
    p_values = [paired_ratio(*blocks(1.0, 8, seed=seed)).p_value for seed in range(200)]
    small = np.mean([p is not None and p <= 0.05 for p in p_values])
    assert 0.01 < small < 0.1


def test_the_p_value_is_the_share_of_labellings_that_show_as_much() -> None:
    """Of eight pairs with the same sign one labelling in 128 is as extreme, either way."""
    baseline = np.full(8, 10.0)
    result = paired_ratio(baseline, baseline * np.linspace(1.1, 1.2, 8))
    assert result.p_value == pytest.approx(2 / 2**8)


def test_pairs_with_a_lost_block_are_left_out() -> None:
    baseline, treatment = blocks(1.3, 10)
    baseline[3], treatment[7] = np.nan, 0.0
    result = paired_ratio(baseline, treatment)
    assert (result.pairs, result.left_out_pairs) == (8, 2)
    with pytest.raises(MeasureError, match="No pair has a value"):
        paired_ratio(np.full(3, np.nan), np.ones(3))
    with pytest.raises(MeasureError, match="cannot be paired"):
        paired_ratio(np.ones(3), np.ones(4))


def test_of_one_pair_only_the_ratio_is_known() -> None:
    result = paired_ratio(np.array([10.0]), np.array([12.0]))
    assert result.ratio.value == pytest.approx(1.2)
    assert result.ratio.low is result.always.low is result.p_value is None


def test_an_arm_that_loses_more_blocks_is_noticed() -> None:
    assert lost_blocks_p((38, 40), 40) > 0.2
    assert lost_blocks_p((25, 40), 40) < 0.001


@pytest.mark.parametrize("planned", [0, 1, 5, 40])
def test_the_chance_of_lost_blocks_is_that_of_fishers_exact_test(planned: int) -> None:
    for kept in product(range(planned + 1), range(0, planned + 1, 3)):
        table = [[one, planned - one] for one in kept]
        assert lost_blocks_p(kept, planned) == pytest.approx(fisher_exact(table).pvalue, abs=1e-12)


def test_several_comparisons_are_judged_together() -> None:
    p_values = {"a": 0.004, "b": 0.03, "c": 0.02, "d": 0.9}
    assert holm(p_values) == {"a": True, "b": False, "c": False, "d": False}
    assert holm({"a": 0.001, "c": 0.01, "b": 0.02}) == {"a": True, "c": True, "b": True}
    assert holm({}) == {}
