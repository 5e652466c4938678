"""A twin of an application without recordings takes its parameters from fitted twins."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stallward.env.testing import small_twin
from stallward.env.twin.estimate.transfer import transfer
from stallward.env.twin.inputs.exogenous import Exogenous
from stallward.env.twin.inputs.fitted import FittedTwin
from stallward.env.twin.inputs.parameters import TwinParameters


def described(service_s: float) -> Exogenous:
    scenario = small_twin().scenario
    return replace(scenario, protected=replace(scenario.protected, service_s=service_s))


def fitted(service_s: float, *touch_scales: float) -> FittedTwin:
    draws = tuple(TwinParameters(touch_scale=scale) for scale in touch_scales)
    weights = (1.0 / len(draws),) * len(draws)
    return FittedTwin(scenario=described(service_s), draws=draws, weights=weights)


def weights_of(twin: FittedTwin) -> dict[float, float]:
    pairs = zip(twin.draws, twin.weights, strict=True)
    return {draw.touch_scale: weight for draw, weight in pairs}


def test_the_most_similar_twin_has_the_largest_weight_and_its_draws_have_equal_ones() -> None:
    weights = weights_of(transfer(described(1e-4), [fitted(1e-2, 4.0), fitted(1.2e-4, 0.1, 0.2)]))
    assert weights[4.0] < 1e-6, "a twin with requests a hundred times as long has a weight"
    assert weights[0.1] == weights[0.2] == pytest.approx(0.5)


def test_longer_and_shorter_requests_are_equally_different() -> None:
    weights = weights_of(transfer(described(1e-3), [fitted(2e-3, 0.1), fitted(5e-4, 0.2)]))
    assert weights[0.1] == pytest.approx(weights[0.2])
    nearer = weights_of(transfer(described(1e-3), [fitted(2e-3, 0.1), fitted(1e-3, 0.2)]))
    assert nearer[0.1] / nearer[0.2] == pytest.approx(0.38, abs=0.01), "half as much, and less"


def test_weights_are_finite_however_different_all_twins_are() -> None:
    far = transfer(described(1e-6), [fitted(1e4, 0.1), fitted(1e5, 0.2)])
    assert np.isfinite(far.weights).all()
    assert weights_of(far)[0.1] > 0.9


def test_the_new_twin_keeps_its_own_sizes() -> None:
    mine = replace(described(1e-4), name="mine", zone_bytes=123 << 20)
    assert transfer(mine, [fitted(1e-2, 1.0)]).scenario == mine
