"""Advantages and rewards are scaled so that all scenarios contribute to a gradient."""

from __future__ import annotations

import numpy as np
import pytest

from stallward.training.ppo.callback import normalise_advantages, reward_scales


def test_all_scenarios_contribute_alike() -> None:
    rng = np.random.default_rng(1)
    scenarios = rng.integers(2, size=(32, 64))
    counts = rng.random((32, 64)) < 0.9
    advantages = rng.normal(3.0, np.where(scenarios == 0, 40.0, 10.0)).astype(np.float32)
    normalised = normalise_advantages(advantages, scenarios, counts)
    for scenario in (0, 1):
        of_scenario = normalised[counts & (scenarios == scenario)]
        assert of_scenario.mean() == pytest.approx(0.0, abs=1e-5)
        assert of_scenario.std() == pytest.approx(1.0, rel=1e-3)
    assert (normalised[~counts] == 0.0).all(), "a step that does not count has an advantage"


def test_advantages_that_are_only_noise_stay_small() -> None:
    rng = np.random.default_rng(2)
    scenarios = np.tile(np.arange(2), (32, 32))
    advantages = rng.normal(0.0, np.where(scenarios == 0, 50.0, 1e-4)).astype(np.float32)
    normalised = normalise_advantages(advantages, scenarios, np.ones_like(scenarios, dtype=bool))
    assert normalised[scenarios == 1].std() < 1e-3


def test_steps_that_do_not_count_have_no_advantage() -> None:
    advantages = np.ones((2, 2), dtype=np.float32)
    normalised = normalise_advantages(advantages, np.full((2, 2), 3), np.zeros((2, 2), dtype=bool))
    assert (normalised == 0.0).all()


def test_the_largest_penalty_is_bounded_in_every_scenario() -> None:
    prices = np.array([[40.0, 0.1], [4.0, 0.05], [20.0, 0.1]])
    worst = reward_scales(prices) * prices.sum(axis=0)
    assert worst.max() <= 0.1
    assert reward_scales(prices)[1] > 10.0 * reward_scales(prices)[0]
