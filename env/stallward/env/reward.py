"""The reward, in SLO units: background progress minus the price of violations and switching.

Pure. A reward of 1 is the whole background at full speed with every request in time.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.env.errors import ScenarioError

Array = NDArray[np.float64]

_NEAR: Final = 0.9
"""Severity begins a little below the target, so that there is a slope to follow at it."""
_WORST: Final = 4.0
"""A request this many times over the target counts in full; later ones count no more."""
_REPORTED_QUANTILE: Final = 0.95


def check_quantile(scenario: str, quantile: float) -> None:
    """Refuse a target that no reward can judge: nodes and twins report p95 only.

    Raises:
        ScenarioError: If the target is about another quantile.
    """
    if quantile != _REPORTED_QUANTILE:
        raise ScenarioError(
            f"The target of {scenario!r} is about p{100 * quantile:g}, and policies are rewarded "
            f"by p{100 * _REPORTED_QUANTILE:g} only.",
            next_step="Train on a scenario with quantile = 0.95; `stallward compare` judges any.",
        )


def severity(latency_ms: Array, slo_ms: Array) -> Array:
    """How badly a request misses its target: 0 well below it, 1 from four times over it."""
    ratio = np.maximum(latency_ms, 1e-6) / (slo_ms * _NEAR)
    return np.asarray(np.clip(np.log(ratio) / np.log(_WORST / _NEAR), 0.0, 1.0))


def violated_share(latency_ms: Array, weight: Array, slo_ms: Array) -> Array:
    """Severity of a tick's requests, averaged.

    Args:
        latency_ms: ``(N, B)``.
        weight: How many requests each stands for, ``(N, B)``.
        slo_ms: ``(B,)``.

    Returns:
        ``(B,)``; 0 where nobody asked anything.
    """
    total = weight.sum(axis=0)
    bad = (severity(latency_ms, slo_ms) * weight).sum(axis=0)
    return np.asarray(bad / np.maximum(total, 1e-9))


def mean_progress(progress: Array, on: Array) -> Array:
    """Mean over the programs that are on of their share of full speed, ``(SLOTS, B)`` each.

    With nothing to hold back it is 1.
    """
    count = on.sum(axis=0)
    mean = (progress * on).sum(axis=0) / np.maximum(count, 1.0)
    return np.asarray(np.where(count > 0.0, mean, 1.0))


def reward(
    progress: Array, violated: Array, moved: Array, price: Array | float, switch_cost: float
) -> Array:
    """The reward of one tick.

    Args:
        progress: As :func:`mean_progress`.
        violated: As :func:`violated_share`.
        moved: How many levers moved.
        price: Of all requests missing the target by far, in units of full background speed,
            scalar or one a node.
        switch_cost: Of one lever moving once.
    """
    return np.asarray(progress - price * violated - switch_cost * moved)
