"""Logarithms of stalls and latencies, so that a network can tell small values apart.

The share of time stalled ranges from a thousandth, where an application begins to suffer, to a
half. Scaled linearly by its spread on nodes under pressure, every value below a hundredth looks
like zero to a network; tuned rules act at 0.003. So the logarithm of these features is taken
first.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.observation.encoder import OBSERVATION_NAMES

Array = NDArray[np.float32]

_STALL_SCALE: Final = 1000.0
_LATENCY_SCALE: Final = 100.0


def _log_scale(name: str) -> float:
    if "_psi_" in name:
        return _STALL_SCALE
    is_latency = name.startswith("latency_") and ("_ratio" in name or "_over_usual" in name)
    return _LATENCY_SCALE if is_latency else 0.0


LOG_SCALES: Final[Array] = np.array(
    [_log_scale(name) for name in OBSERVATION_NAMES], dtype=np.float32
)
"""The log scale of each feature of an observation; 0 leaves a feature linear."""


def with_log_features(observations: Array, fine: Array) -> Array:
    """Compute ``log(1 + fine * x) / log(1 + fine)``: 0 and 1 stay, small values are spread out.

    Args:
        observations: The observations, ``(N, features)``. Negative values of features with
            a log scale count as 0.
        fine: The log scale of each feature, ``(features,)``; 0 leaves it linear.

    Returns:
        The features, the same shape.
    """
    columns = np.flatnonzero(fine)
    features = observations.copy()
    linear = np.maximum(observations[:, columns], 0.0)
    features[:, columns] = np.log(1.0 + fine[columns] * linear) / np.log(1.0 + fine[columns])
    return features
