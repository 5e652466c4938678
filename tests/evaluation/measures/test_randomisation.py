"""The randomisation test gives the p-values of scipy, which is not on nodes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import permutation_test

from stallward.evaluation.measures.intervals import randomisation_p


@pytest.mark.parametrize("decimals", [1, 12])  # with one decimal, many sums are equal
@pytest.mark.parametrize("pairs", [2, 5, 9, 10, 40])  # of up to nine all labellings are tried
def test_the_p_value_is_that_of_scipy(pairs: int, decimals: int) -> None:
    for seed in range(8):
        parts = np.random.default_rng(seed).normal(0.2, 1.0, pairs).round(decimals)
        expected = permutation_test(
            (parts,),
            np.sum,
            permutation_type="samples",
            n_resamples=999,
            vectorized=True,
            random_state=np.random.default_rng(seed),
        )
        assert randomisation_p(parts, labellings=999, seed=seed) == expected.pvalue


def test_one_pair_has_no_p_value() -> None:
    assert randomisation_p(np.array([1.0]), labellings=999, seed=1) is None
