"""Twins of applications without fits of their own, from the fitted twins of similar ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from stallward.env.twin.inputs.exogenous import Exogenous
from stallward.env.twin.inputs.fitted import FittedTwin

_BANDWIDTH: Final = 0.5
"""The bandwidth for logarithms of service times: twice the service time counts for 0.4 as much.

It predicted left-out scenarios, without those held out for tests, better than 1, 2 and equal
weights.
"""


def transfer(scenario: Exogenous, fitted: Sequence[FittedTwin]) -> FittedTwin:
    """Make a twin of ``scenario`` with the parameters of other twins.

    Runs without memory pressure do not show how many pages a request touches and what a miss
    costs. Both depend on how long a request takes: one of 10 ms that evaluates a neural network
    touches all of its pages, one of 0.1 ms a few. So the draws of a twin are weighted by how
    similar its service time is, with a Gaussian kernel of the logarithms.

    Args:
        scenario: The exogenous description, estimated from runs without memory pressure
            (:func:`~stallward.env.twin.estimate.exogenous.estimate_exogenous`).
        fitted: Twins of other scenarios, at least one.
    """
    distance = [
        np.log(twin.scenario.protected.service_s / scenario.protected.service_s) / _BANDWIDTH
        for twin in fitted
    ]
    least = min(abs(each) for each in distance)  # the nearest twin counts, however far it is
    similarity = np.exp(-0.5 * (np.square(distance) - least**2))
    similarity /= similarity.sum()
    return FittedTwin(
        scenario=scenario,
        draws=tuple(draw for twin in fitted for draw in twin.draws),
        weights=tuple(
            float(twin_weight * weight)
            for twin_weight, twin in zip(similarity, fitted, strict=True)
            for weight in twin.weights
        ),
    )
