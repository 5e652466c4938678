"""The signals that rules use, computed back from observations of one node or of many twins.

Rules see exactly what policies see. Turning features back into multiples of the target, shares of
time and pages per second keeps the thresholds of rules in units that people know.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.agent.desired import LIMIT_RATIOS, SLOTS
from stallward.agent.observation.encoder import OBSERVATION_NAMES
from stallward.agent.observation.feature_table import FRAME_FEATURES, FRAME_NAMES

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Observations = NDArray[np.float32]

_INDEX: Final = {name: i for i, name in enumerate(OBSERVATION_NAMES)}
_FOLD: Final = {
    name: feature.fold for name, feature in zip(FRAME_NAMES, FRAME_FEATURES, strict=True)
}
_FORGET_S: Final = 10.0
"""After this long without an answer no requests arrive, and the last latency no longer counts."""


def _slot_columns(feature: str) -> NDArray[np.intp]:
    return np.array([_INDEX[f"slot{i}_{feature}"] for i in range(SLOTS)])


_PRESENT: Final = _slot_columns("present")
_PAUSED: Final = _slot_columns("paused")
_LIMIT: Final = _slot_columns("limit_ratio")
_REFERENCE: Final = _slot_columns("reference_ratio")
_RATIOS: Final = np.array(LIMIT_RATIOS)


def _column(observations: Observations, name: str) -> Array:
    return observations[:, _INDEX[name]].astype(np.float64)


def _without_log(observations: Observations, name: str) -> Array:
    """The value from which a feature of kind LOG was computed, in units of its scale."""
    return np.exp2(_FOLD[name] * _column(observations, name)) - 1.0


def stall_share(observations: Observations) -> Array:
    """Share of the last second in which the protected application stalled on memory, ``(B,)``."""
    return _column(observations, "protected_psi_memory_some_share_1s")


def refaults_per_s(observations: Observations) -> Array:
    """Refaults of the protected application, pages per second, ``(B,)``."""
    return np.expm1(10.0 * _column(observations, "protected_refault_rate_1s"))


def free_share(observations: Observations) -> Array:
    """Free share of the zone's memory, ``(B,)``."""
    return np.maximum(1.0 - _column(observations, "zone_usage_ratio"), 0.0)


def present_slots(observations: Observations) -> Mask:
    """Whether each slot has a background group that has started, ``(B, SLOTS)``."""
    present = observations[:, _PRESENT] > 0.0
    return np.asarray(present & (observations[:, _REFERENCE] > 0.0))


def paused_slots(observations: Observations) -> Mask:
    """Whether each slot is paused, ``(B, SLOTS)``."""
    return np.asarray(observations[:, _PAUSED] > 0.0)


def limit_levels(observations: Observations) -> NDArray[np.int64]:
    """The level of each slot's limit, 0 for none, ``(B, SLOTS)``."""
    ratio = observations[:, _LIMIT].astype(np.float64)
    level = (ratio[:, :, None] - 1e-6 <= _RATIOS).sum(axis=2) - 1
    return np.where(observations[:, _PRESENT] > 0.0, level, 0).astype(np.int64)


class LatencySignal:
    """The ratio of p95 to the target, kept through seconds in which no request was answered."""

    def __init__(self, batch: int) -> None:
        self._last = np.zeros(batch)

    def read(self, observations: Observations) -> Array:
        """The ratio now, ``(B,)``; 0 where no latency is known.

        An application that answers nothing may be stuck, so the last ratio counts for another
        10 s, unless nobody tells any more how long it has answered nothing.
        """
        known = _column(observations, "latency_known") > 0.0
        age_s = _without_log(observations, "latency_age")
        kept = np.where((age_s > _FORGET_S) | (age_s <= 0.0), 0.0, self._last)
        self._last = np.where(known, _without_log(observations, "latency_p95_ratio"), kept)
        return self._last
