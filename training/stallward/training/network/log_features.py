"""Small stalls and latencies made visible to a policy's network.

A share of time stalled goes from a thousandth, where an application begins to suffer, to a half.
Divided by how much it varies on nodes under pressure, all below a hundredth is nothing to a
network; tuned rules act at 0.003. So these features go through a logarithm first.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.observation.encoder import OBSERVATION_NAMES

Array = NDArray[np.float32]

_OF_STALLS: Final = 1000.0
_OF_LATENCIES: Final = 100.0


def _fineness(name: str) -> float:
    if "_psi_" in name:
        return _OF_STALLS
    of_latency = name.startswith("latency_") and ("_ratio" in name or "_over_usual" in name)
    return _OF_LATENCIES if of_latency else 0.0


FINE: Final[Array] = np.array([_fineness(name) for name in OBSERVATION_NAMES], dtype=np.float32)
"""How much each feature of an observation is magnified, 0 for not at all."""


def with_log_features(observations: Array, fine: Array) -> Array:
    """``log(1 + fine * x) / log(1 + fine)``: 0 and 1 stay, what is small is spread.

    Args:
        observations: ``(N, OBSERVATION_SIZE)``; those magnified are at least 0.
        fine: Of each feature, ``(OBSERVATION_SIZE,)``; at 0 it is taken as it is.

    Returns:
        The same shape.
    """
    columns = np.flatnonzero(fine)
    found = observations.copy()
    small = np.maximum(observations[:, columns], 0.0)
    found[:, columns] = np.log(1.0 + fine[columns] * small) / np.log(1.0 + fine[columns])
    return found
