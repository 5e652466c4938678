"""The one definition of the observation: the features of a frame, and their history.

The node calls :class:`ObservationEncoder` with batch 1, the twin with thousands; the same code
runs in both. The features are in :mod:`stallward.agent.feature_table`.
"""

from __future__ import annotations

import hashlib
import json
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.desired import ACTION_SIZES, LIMIT_RATIOS, PROFILES, SLOTS
from stallward.agent.feature_table import (
    FRAME_FEATURES,
    FRAME_NAMES,
    NODE_FEATURES,
    SLOT_FEATURES,
)
from stallward.agent.features import FrameFeatures
from stallward.agent.raw import RawFrame

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

HISTORY_S: Final = (1.0, 8.0)
"""Time constants of the fast and the slow moving average, seconds."""

_REMEMBERED: Final = np.array([i for i, f in enumerate(FRAME_FEATURES) if f.remembered])
_TAUS_S: Final = np.array(HISTORY_S)
OBSERVATION_NAMES: Final = FRAME_NAMES + tuple(
    f"{FRAME_NAMES[i]}_{tau_s:g}s" for tau_s in HISTORY_S for i in _REMEMBERED
)
OBSERVATION_SIZE: Final = len(OBSERVATION_NAMES)


def schema() -> dict[str, object]:
    """The observation and action schema, as written into a policy's metadata."""
    return {
        "observation": [
            *(f"{f.name}: {f.meaning}" for f in NODE_FEATURES),
            *(f"slot_{f.name}: {f.meaning}" for f in SLOT_FEATURES),
        ],
        "names": list(OBSERVATION_NAMES),
        "history_s": list(HISTORY_S),
        "slots": SLOTS,
        "action_sizes": list(ACTION_SIZES),
        "limit_ratios": list(LIMIT_RATIOS),
        "profiles": [p.name for p in PROFILES],
    }


def schema_hash() -> str:
    """SHA-256 of the schema's canonical JSON; a policy carries the one it was trained with."""
    return hashlib.sha256(json.dumps(schema(), sort_keys=True).encode()).hexdigest()


class ObservationEncoder:
    """Turns raw frames into observations, keeping the previous frame and the averages.

    Args:
        batch: Number of nodes encoded together, ``B``.
        slo_ms: Latency target; shape ``()`` or ``(B,)``.
    """

    def __init__(self, batch: int = 1, slo_ms: float | Array = 100.0) -> None:
        slo = np.broadcast_to(np.asarray(slo_ms, dtype=np.float64), (batch,))
        self._features = FrameFeatures(slo)
        self._averages = np.zeros((batch, len(HISTORY_S), _REMEMBERED.size))
        self._fresh = np.ones(batch, dtype=bool)
        self._any_fresh = True

    def reset(self, rows: Mask | None = None) -> None:
        """Forget the history of the nodes in ``rows`` (bool mask ``(B,)``), or of all."""
        self._fresh[slice(None) if rows is None else rows] = True
        self._any_fresh = bool(self._fresh.any())

    def set_slo(self, slo_ms: Array, rows: Mask) -> None:
        """Change the latency target of the nodes in ``rows``; ``slo_ms`` has shape ``(B,)``."""
        self._features.slo_ms[rows] = slo_ms[rows]

    def encode(self, frame: RawFrame) -> NDArray[np.float32]:
        """The observation of one tick.

        The first frame after a reset has no rates (they are 0): they need two samples.

        Args:
            frame: The raw counters; the encoder keeps a copy.

        Returns:
            Shape ``(B, OBSERVATION_SIZE)``, finite, float32.
        """
        fresh = self._fresh if self._any_fresh else None
        features, elapsed_s = self._features.compute(frame, fresh)
        weight = 1.0 - np.exp(np.maximum(elapsed_s, 0.0) / -_TAUS_S)
        if fresh is not None:
            weight[fresh] = 1.0
            fresh[:] = False
            self._any_fresh = False
        step = features.take(_REMEMBERED, axis=1)[:, None, :] - self._averages
        step *= weight[:, :, None]
        self._averages += step
        batch, size = features.shape
        observation = np.empty((batch, OBSERVATION_SIZE), dtype=np.float32)
        observation[:, :size] = features
        observation[:, size:] = self._averages.reshape(batch, -1)
        return observation
