"""Twins of applications that nothing was fitted to."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stallward.env.testing import small_twin
from stallward.env.twin.inputs.exogenous import Exogenous
from stallward.env.twin.inputs.fitted import FittedTwin
from stallward.env.twin.inputs.parameters import TwinParameters
from stallward.training.twin_fit.transfer import transfer


def described(service_s: float) -> Exogenous:
    scenario = small_twin().scenario
    return replace(scenario, protected=replace(scenario.protected, service_s=service_s))


def fitted(service_s: float, *touch_scales: float) -> FittedTwin:
    draws = tuple(TwinParameters(touch_scale=scale) for scale in touch_scales)
    weights = (1.0 / len(draws),) * len(draws)
    return FittedTwin(scenario=described(service_s), draws=draws, weights=weights)


def shares(twin: FittedTwin) -> dict[float, float]:
    pairs = zip(twin.draws, twin.weights, strict=True)
    return {draw.touch_scale: weight for draw, weight in pairs}


def test_the_most_like_it_teaches_the_most_and_every_draw_of_it_alike() -> None:
    found = shares(transfer(described(1e-4), [fitted(1e-2, 4.0), fitted(1.2e-4, 0.1, 0.2)]))
    assert found[4.0] < 1e-6, "a request of a hundred times the time teaches nothing"
    assert found[0.1] == found[0.2] == pytest.approx(0.5)


def test_longer_and_shorter_requests_are_equally_unlike() -> None:
    found = shares(transfer(described(1e-3), [fitted(2e-3, 0.1), fitted(5e-4, 0.2)]))
    assert found[0.1] == pytest.approx(found[0.2])
    nearer = shares(transfer(described(1e-3), [fitted(2e-3, 0.1), fitted(1e-3, 0.2)]))
    assert nearer[0.1] / nearer[0.2] == pytest.approx(0.38, abs=0.01), "half as much, and less"


def test_somebody_has_to_teach_however_unlike() -> None:
    far = transfer(described(1e-6), [fitted(1e4, 0.1), fitted(1e5, 0.2)])
    assert np.isfinite(far.weights).all()
    assert shares(far)[0.1] > 0.9


def test_sizes_are_its_own() -> None:
    mine = replace(described(1e-4), name="mine", zone_bytes=123 << 20)
    assert transfer(mine, [fitted(1e-2, 1.0)]).scenario == mine
