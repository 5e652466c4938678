"""The reward, in SLO units: background progress minus the price of violated windows and switching.

Pure. A reward of 1 is the whole background at full speed with every window in its target.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.env.errors import ScenarioError

Array = NDArray[np.float64]

_NEAR: Final = 0.9
"""Severity begins a little below the target, so that there is a slope to follow at it."""
_WORST: Final = 4.0
"""A latency this many times over the target counts in full; more counts no more."""
AT_TARGET: Final = math.log(1.0 / _NEAR) / math.log(_WORST / _NEAR)
"""Severity of a window that just meets its target."""
_SILENT_S: Final = 1.0
_SILENT_REQUESTS: Final = 5.0
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
    """How badly a latency misses its target: 0 well below it, 1 from four times over it."""
    ratio = np.maximum(latency_ms, 1e-6) / (slo_ms * _NEAR)
    return np.asarray(np.clip(np.log(ratio) / np.log(_WORST / _NEAR), 0.0, 1.0))


def window_severity(
    p95_ms: Array, age_s: Array, running_s: Array, slo_ms: Array, rate_per_s: Array
) -> Array:
    """How badly the last second misses its target, by what the latency source says of it.

    Args:
        p95_ms: Of the requests answered in it, ``(B,)``; NaN where there were none.
        age_s: Since the last answer, ``(B,)``; NaN where there was none yet.
        running_s: Since the start, ``(B,)``.
        slo_ms: ``(B,)``.
        rate_per_s: Requests that arrive, ``(B,)``. A second without an answer, or the time of
            five requests where that is longer, counts as missing the target by far.

    Returns:
        :func:`severity` of the p95, ``(B,)``.
    """
    silent_s = np.where(np.isnan(age_s), running_s, age_s)
    late = np.where(np.isnan(p95_ms), 0.0, severity(np.nan_to_num(p95_ms), slo_ms))
    silent = silent_s > np.maximum(_SILENT_S, _SILENT_REQUESTS / rate_per_s)
    return np.asarray(np.where(silent, 1.0, late))


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
        violated: As :func:`window_severity`.
        moved: How many levers moved.
        price: Of every window missing the target by far, in units of full background speed,
            scalar or one a node.
        switch_cost: Of one lever moving once.
    """
    return np.asarray(progress - price * violated - switch_cost * moved)
