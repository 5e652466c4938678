"""The reward: background progress less what the application pays for it, and less switching.

What the application pays is what comparisons hold against a policy, each at a price of its own:
seconds that miss the target, latency beyond what is usual with ample memory, and requests slower
than nearly all are then. Pure functions of one node. A reward of 1 is the whole background at full
speed with nothing to pay.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stallward.env.errors import ScenarioError
from stallward.env.twin.simd.elementary import log
from stallward.env.twin.simd.jit import model
from stallward.env.twin.simd.values import is_nan, maximum, minimum, where

Array = NDArray[np.float64]

SUFFERED: Final = ("window_violated", "excess", "slow")
"""What a comparison holds against a policy: windows over the target, the mean, and the tail."""
PENALTIES: Final = np.array([10.0, 2.0, 10.0])
"""A hundredth of all windows or requests beyond those allowed costs a tenth of full speed, and so
does a mean that is 5 % longer."""
TAIL: Final = 1.15
"""Requests slower than this many times the p99 with ample memory are slow ones: where one in a
hundred is, the p99 is 15 % longer."""
TARGET: Final = 1.5
"""The usual target is so many times the p99 with ample memory."""
_NEAR: Final = TAIL / TARGET
"""Severity begins below the target. The usual one is 1.5 times the p99 with ample memory, and a
tail 15 % longer than that one is what an application may notice."""
_WORST: Final = 4.0
"""A latency this many times over the target counts in full; more counts no more."""
_LOG_WORST: Final = math.log(_WORST / _NEAR)
MOST_EXCESS: Final = 10.0
"""A latency this many times over the usual one counts in full; more counts no more."""
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


@model
def severity(latency_ms: float, slo_ms: float) -> float:
    """How badly a latency misses its target: 0 well below it, 1 from four times over it."""
    ratio = maximum(latency_ms, 1e-6) / (slo_ms * _NEAR)
    return minimum(maximum(log(ratio) / _LOG_WORST, 0.0), 1.0)


@model
def window_severity(
    p95_ms: float, age_s: float, running_s: float, slo_ms: float, rate_per_s: float
) -> float:
    """How badly the last second misses its target, by what the latency source says of it.

    Args:
        p95_ms: Of the requests answered in it; NaN where there were none.
        age_s: Since the last answer; NaN where there was none yet.
        running_s: Since the start.
        slo_ms: The target.
        rate_per_s: Requests that arrive. A second without an answer, or the time of five
            requests where that is longer, counts as missing the target by far.

    Returns:
        :func:`severity` of the p95.
    """
    silent_s = where(is_nan(age_s), running_s, age_s)
    late = where(is_nan(p95_ms), 0.0, severity(where(is_nan(p95_ms), slo_ms, p95_ms), slo_ms))
    silent = silent_s > maximum(_SILENT_S, _SILENT_REQUESTS / maximum(rate_per_s, 1e-12))
    return where(silent, 1.0, late)


@model
def mean_progress(together: float, count: float) -> float:
    """Mean share of full speed of ``count`` programs that are on, from their sum.

    With nothing to hold back it is 1.
    """
    return where(count > 0.0, together / maximum(count, 1.0), 1.0)


@model
def excess(latency_ms: float, usual_ms: float) -> float:
    """By how many times the usual latency a request took longer; negative where it was faster."""
    return minimum(latency_ms / usual_ms - 1.0, MOST_EXCESS)


@model
def reward(progress: float, paid: float, moved: float, switch_cost: float) -> float:
    """The reward of one tick.

    Args:
        progress: As :func:`mean_progress`.
        paid: The prices times what the application suffered, in units of full background speed.
        moved: How many levers moved.
        switch_cost: Of one lever moving once.
    """
    return progress - paid - switch_cost * moved


def in_order(
    *, window_violated: Array | float, excess: Array | float, slow: Array | float
) -> Array:
    """Figures of what was suffered as an array, in the order of ``SUFFERED``."""
    figures = {"window_violated": window_violated, "excess": excess, "slow": slow}
    return np.array([figures[name] for name in SUFFERED])


@dataclass(frozen=True, slots=True, kw_only=True)
class Slack:
    """How far a policy may go beyond ample memory: the figures of the live verdict."""

    windows: float = 0.005
    """Share of windows that miss the target, beyond those with ample memory."""
    excess: float = 0.05
    """By how many times the mean latency is longer."""
    slow: float = 0.01
    """Share of requests slower than 1.15 times the p99 with ample memory."""

    def as_array(self) -> Array:
        """In the order of ``SUFFERED``, ``(len(SUFFERED), 1)``."""
        each = in_order(window_violated=self.windows, excess=self.excess, slow=self.slow)
        return each[:, np.newaxis]


def scored(progress: Array, suffered: Array, allowed: Array) -> Array:
    """Progress less penalties for what was suffered beyond what is allowed.

    Args:
        progress: Of any shape.
        suffered: The same with each of ``SUFFERED`` before.
        allowed: That fits it.
    """
    beyond = np.maximum(suffered - allowed, 0.0)
    return np.asarray(progress - np.tensordot(PENALTIES, beyond, axes=1))


def constrained_score(
    progress: Array, suffered: Array, scenario: NDArray[np.int64], allowed: Array
) -> tuple[float, float]:
    """Progress less penalties for what is suffered beyond what is allowed.

    What is allowed is a share over all episodes of a scenario: held against each episode, bad
    luck in one would cost what good luck in another does not give back.

    Args:
        progress: Of each episode.
        suffered: In each, ``(len(SUFFERED), episodes)``.
        scenario: Which it was, an index into ``allowed``.
        allowed: For each scenario, ``(len(SUFFERED), scenarios)``.

    Returns:
        The mean over the scenarios that there are, and its standard error.
    """
    scores, variances = [], []
    for index in np.unique(scenario):
        mine = scenario == index
        means = suffered[:, mine].mean(axis=1)
        scores.append(float(scored(progress[mine].mean(), means, allowed[:, index])))
        priced = np.where(means > allowed[:, index], PENALTIES, 0.0)
        parts = progress[mine] - priced @ suffered[:, mine]
        count = int(mine.sum())
        variances.append(float(parts.var(ddof=1)) / count if count > 1 else 0.0)
    return float(np.mean(scores)), float(np.sqrt(np.sum(variances)) / len(scores))
