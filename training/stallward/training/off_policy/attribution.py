"""Which features a policy's choices come from: integrated gradients, by differences.

Sundararajan, Taly and Yan, "Axiomatic Attribution for Deep Networks", ICML 2017. The gradients
along the straight line from the usual observation to the one that is explained add up to the
difference of the outputs, so that each feature has its part of it. They are taken as central
differences: a policy is a file that can be run and not differentiated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Outputs = Callable[[NDArray[np.float32]], NDArray[np.float32]]
"""The outputs of a network for one observation: ``(N,)`` to ``(M,)``."""
POINTS: Final = 16
"""How many points of the line are looked at."""
_STEP: Final = 0.02
"""The width of a difference, as a share of the line: wide enough for the digits of float32."""


def integrated_gradients(
    outputs: Outputs, observation: Array, usual: Array, points: int = POINTS
) -> Array:
    """What each feature adds to each output, compared with the usual observation.

    Args:
        outputs: The network.
        observation: What is explained, ``(N,)``.
        usual: What it is compared with, ``(N,)``.
        points: How many points of the line are looked at.

    Returns:
        ``(N, M)``. Over the features they add up to the outputs of ``observation`` less those of
        ``usual``, but for what lies between the points.
    """
    line = observation - usual
    moved = np.flatnonzero(line)
    at = usual + line * ((np.arange(points) + 0.5) / points)[:, None]
    added = np.zeros((len(line), len(outputs(np.asarray(usual, dtype=np.float32)))))
    for feature in moved:
        half = 0.5 * _STEP * line[feature]
        for point in at:
            ends = []
            for side in (half, -half):
                end = point.astype(np.float32)
                end[feature] = point[feature] + side
                ends.append(np.asarray(outputs(end), dtype=np.float64))
            added[feature] += ends[0] - ends[1]
    return added / (_STEP * points)
