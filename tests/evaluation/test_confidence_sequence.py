"""Confidence sequences hold at every look, and find effects."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import t as student

from stallward.actuator.sequential import PRIOR_EFFECT
from stallward.evaluation.measures.intervals import mean_sequence

LOOKS = 100


def experiments(mean: float, spread: float, count: int = 4000) -> np.ndarray:
    return np.random.default_rng(1).normal(mean, spread, size=(count, LOOKS))


@pytest.mark.parametrize("spread", [0.01, 3.0])
def test_it_leaves_out_the_mean_in_few_experiments_although_every_look_counts(
    spread: float,
) -> None:
    values = experiments(0.2, spread)
    low, high = mean_sequence(values)
    ever = ((low > 0.2) | (high < 0.2)).any(axis=-1).mean()
    assert ever < 0.05
    # The same looks at ordinary intervals, which shows that the test can fail.
    count = np.arange(2, LOOKS + 1)
    means = np.cumsum(values, axis=-1)[:, 1:] / count
    errors = np.array([values[:, :n].std(axis=1, ddof=1) / np.sqrt(n) for n in count]).T
    reach = student.ppf(0.975, count - 1) * errors
    assert (np.abs(means - 0.2) > reach).any(axis=-1).mean() > 0.2


def test_it_finds_an_effect_and_is_narrower_with_more_values() -> None:
    values = experiments(1.0, 1.0)
    low, high = mean_sequence(values)
    assert (low > 0.0).any(axis=-1).mean() > 0.99
    widths = (high - low).mean(axis=0)
    assert np.isinf(widths[0])
    assert widths[20] > widths[50] > widths[99]
    fixed = 2.0 * student.ppf(0.975, LOOKS - 1) / np.sqrt(LOOKS)
    assert fixed < widths[99] < 2.0 * fixed


def evidence(t: float, count: int) -> float:
    """The Bayes factor of a t statistic: the evidence that the mean is not the one assumed."""
    spread = 1.0 + count * PRIOR_EFFECT**2
    grown = (1.0 + t**2 / (count - 1.0)) / (1.0 + t**2 / ((count - 1.0) * spread))
    return float(grown ** (count / 2.0) / np.sqrt(spread))


def test_at_its_bounds_the_evidence_is_as_large_as_allowed() -> None:
    values = experiments(0.0, 1.0, count=1)[0]
    low, high = mean_sequence(values, alpha=0.01)
    for count in (8, 30, 100):
        some = values[:count]
        error = some.std(ddof=1) / np.sqrt(count)
        for bound in (low, high):
            t = (some.mean() - bound[count - 1]) / error
            assert evidence(t, count) == pytest.approx(100.0)


def test_values_that_do_not_vary_are_their_mean() -> None:
    low, high = mean_sequence(np.full(30, 2.0))
    assert (low[-1], high[-1]) == (2.0, 2.0)
    assert np.isinf(high[0])
