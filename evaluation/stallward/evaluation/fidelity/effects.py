"""The effects between arms, and whether their signs on the twin are right. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Final

import numpy as np

from stallward.evaluation.fidelity.observed import Observed
from stallward.evaluation.measures.block_measures import Array
from stallward.evaluation.measures.bootstrap import (
    RUN_WINDOWS,
    bootstrap_quantiles,
    moving_block_counts,
)

_RESAMPLES: Final = 400
_INTERVAL: Final = (0.025, 0.975)


def count_signs(arms: Sequence[tuple[Observed, Observed]]) -> tuple[int, int]:
    """Count the effects on p95 and on background work between all pairs of arms.

    An effect is certain if its live 95 % interval excludes zero. The interval comes from
    resampling the seconds of all blocks of an arm, in runs.

    Args:
        arms: The blocks of each arm, live and on the twin.

    Returns:
        How many certain effects have the right sign on the twin, and how many there are.
    """
    rng = np.random.default_rng(0)
    draws = [_draws(live, rng) for live, _ in arms]
    predicted = [_predicted(twin) for _, twin in arms]
    right = counted = 0
    for one, two in combinations(range(len(arms)), 2):
        for measure in range(len(predicted[one])):
            sign = _sure_sign(draws[one][measure] - draws[two][measure])
            if sign:
                counted += 1
                # An unknown figure of the twin counts as a wrong sign: NaN equals nothing.
                difference = predicted[one][measure] - predicted[two][measure]
                right += bool(np.sign(difference) == sign)
    return right, counted


def _draws(live: Observed, rng: np.random.Generator) -> tuple[Array, Array]:
    """Bootstrap draws of the logarithm of p95, and of the background work."""
    windows = [pool for block in live.blocks for pool in block.latency_windows()]
    counts = moving_block_counts(len(windows), RUN_WINDOWS, _RESAMPLES, rng)
    with np.errstate(divide="ignore"):
        p95 = np.log(bootstrap_quantiles(windows, [0.95], counts)[:, 0])
    units = np.concatenate([block.units for block in live.blocks])
    counts = moving_block_counts(len(units), RUN_WINDOWS, _RESAMPLES, rng)
    return p95, np.array([live.work_of(np.repeat(units, row, axis=0)) for row in counts])


def _predicted(twin: Observed) -> tuple[float, float]:
    """The logarithm of p95 and the background work on the twin."""
    units = np.concatenate([block.units for block in twin.blocks])
    return float(np.log(twin.latency_ms.p95)), twin.work_of(units)


def _sure_sign(differences: Array) -> int:
    """The sign of an effect; 0 if its interval contains zero, or too little is known."""
    known = differences[np.isfinite(differences)]
    if len(known) < len(differences) / 2:
        return 0
    low, high = np.quantile(known, _INTERVAL)
    return int(np.sign(low)) if low * high > 0.0 else 0
