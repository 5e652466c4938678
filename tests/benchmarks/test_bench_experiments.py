"""Simulated experiments: no more false alarms than promised, and the effect that was planned."""

from __future__ import annotations

import math

import numpy as np
import pytest

from stallward.benchmarks.experiments import (
    MEANINGS,
    ExperimentSettings,
    figures_of,
    planned_against_seen,
    planned_shift,
    simulate,
)
from stallward.env.twin.inputs.fitted import load_fitted
from stallward.models.registry import find_twin


def test_experiments_on_twin_nodes_run_to_their_end_and_repeat_by_seed() -> None:
    settings = ExperimentSettings(experiments=8, pairs=8, block_s=12.0, burn_in_s=4.0)
    twin = load_fitted(find_twin("detector-anon"))
    states = simulate(twin, settings)
    assert {len(state.blocks) for state in states} == {16}
    assert len({tuple(block.arm for block in state.blocks) for state in states}) > 1
    figures = figures_of(states)
    assert figures.keys() == MEANINGS.keys()
    again = simulate(twin, settings)
    assert [state.blocks for state in again] == [state.blocks for state in states]


def test_experiments_show_the_effect_that_was_planned_whatever_the_node() -> None:
    rng = np.random.default_rng(3)
    spreads = rng.uniform(0.05, 0.2, size=2000)  # nodes differ
    figures = planned_against_seen(spreads[:, None] * rng.standard_normal((2000, 24)))
    assert figures["planned_found_share"] == pytest.approx(0.8, abs=0.06)
    assert figures["needed_ratio"] == pytest.approx(1.0, abs=0.15)


def test_a_planner_that_promises_too_much_is_found_out() -> None:
    """The second half is twice as noisy as what was planned by."""
    rng = np.random.default_rng(3)
    ratios = 0.1 * rng.standard_normal((2000, 24))
    ratios[:, 12:] *= 2.0
    figures = planned_against_seen(ratios)
    assert figures["planned_found_share"] is not None
    assert figures["planned_found_share"] < 0.5
    assert figures["needed_ratio"] is not None
    assert figures["needed_ratio"] > 1.7


def test_an_effect_beyond_all_that_are_tried_is_not_stated() -> None:
    assert math.isnan(planned_shift(4, 3.0))
    loud = 5.0 * np.random.default_rng(1).standard_normal((50, 8))
    assert set(planned_against_seen(loud).values()) == {None}
