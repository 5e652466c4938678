"""Twins of applications that nothing was fitted to: what others taught, by how like they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from stallward.env.twin.inputs.exogenous import Exogenous
from stallward.env.twin.inputs.fitted import FittedTwin

_BANDWIDTH: Final = 0.5
"""Of the logarithm of service times: one twice as long counts for 0.4 of an equal one.

Of 0.5, 1, 2 and equal weights it predicted left-out scenarios best, without those of the test.
"""


def transfer(scenario: Exogenous, fitted: Sequence[FittedTwin]) -> FittedTwin:
    """A twin of ``scenario`` with the parameters of others.

    How many pages a request touches and what misses cost it cannot be seen in runs that nothing
    presses. It goes with how long a request takes: one of 10 ms that goes through a neural
    network touches all of it, one of 0.1 ms a few pages. So draws count by how near the service
    times are, with a Gaussian kernel of their logarithms.

    Args:
        scenario: What references show of it
        (:func:`~stallward.training.twin_fit.exogenous.describe`).
        fitted: Twins of other scenarios, at least one.
    """
    distance = [
        np.log(twin.scenario.protected.service_s / scenario.protected.service_s) / _BANDWIDTH
        for twin in fitted
    ]
    least = min(abs(each) for each in distance)  # so that the nearest counts, however far it is
    likeness = np.exp(-0.5 * (np.square(distance) - least**2))
    likeness /= likeness.sum()
    return FittedTwin(
        scenario=scenario,
        draws=tuple(draw for twin in fitted for draw in twin.draws),
        weights=tuple(
            float(like * weight)
            for like, twin in zip(likeness, fitted, strict=True)
            for weight in twin.weights
        ),
    )
