"""Simulated experiments: no more false alarms than promised, and the effect that was planned."""

from __future__ import annotations

import numpy as np
import pytest

from stallward.env.twin.inputs.fitted import load_fitted
from stallward.evaluation.bench.experiments import (
    MEANINGS,
    ExperimentSettings,
    figures_of,
    planned_effect,
    seen_effect,
    simulate,
)
from stallward.models.registry import find_twin


def test_experiments_on_twin_nodes_run_to_their_end_and_repeat_by_seed() -> None:
    settings = ExperimentSettings(experiments=8, pairs=4, block_s=12.0, burn_in_s=4.0)
    twin = load_fitted(find_twin("detector-anon"))
    states = simulate(twin, settings)
    assert {len(state.blocks) for state in states} == {8}
    assert len({tuple(block.arm for block in state.blocks) for state in states}) > 1
    figures = figures_of(states)
    assert figures.keys() == MEANINGS.keys()
    assert figures["pair_spread"] is not None
    assert figures["pair_spread"] > 0.0
    again = simulate(twin, settings)
    assert [state.blocks for state in again] == [state.blocks for state in states]


def test_the_planner_states_the_effect_that_experiments_see() -> None:
    pairs, spread = 12, 0.1
    ratios = np.random.default_rng(3).normal(0.0, spread, size=(2000, pairs))
    planned, seen = planned_effect(pairs, spread), seen_effect(ratios)
    assert planned is not None
    assert seen == pytest.approx(planned, rel=0.1)


def test_an_effect_beyond_all_that_are_tried_is_not_stated() -> None:
    assert planned_effect(2, 3.0) is None
    assert seen_effect(np.random.default_rng(1).normal(0.0, 5.0, size=(50, 4))) is None
