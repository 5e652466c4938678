"""The objective: the background's progress, less a price for what the application suffers.

Training, choosing between policies and comparisons on live nodes all use it. The application
suffers in three ways, each with its own price (``SUFFERED``): windows that miss the target,
latency beyond the latency baseline, and slow requests.

- :func:`reward` is the objective of one tick. It is 1 when the whole background runs at full
  speed, the application suffers nothing and no lever moves.
- :func:`constrained_score` is the objective of whole episodes. It penalises only the suffering
  beyond an allowance, and only once.

All functions are pure. Those marked with ``model`` also run in compiled code, for eight nodes at
once.
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
"""What the application suffers: the share of windows over the target, the excess of the mean
latency over the baseline, and the share of slow requests."""
PENALTIES: Final = np.array([10.0, 2.0, 10.0])
"""The penalty for each of ``SUFFERED`` beyond the allowance, in units of full background speed. A
hundredth of all windows or requests costs a tenth, and so does a mean that is 5 % longer. The
largest of the three counts: one slow second shows in all of them."""

SLOW_RATIO: Final = 1.15
"""A request is slow when it takes more than this many times the p99 with ample memory. If one
request in a hundred is slow, the p99 is 15 % longer."""
TARGET_RATIO: Final = 1.5
"""The default target is this many times the p99 with ample memory."""
MAX_EXCESS: Final = 10.0
"""The excess of one request is capped at this many times the latency baseline."""

_ONSET_RATIO: Final = SLOW_RATIO / TARGET_RATIO
"""Severity begins at this share of the target: with the default target, where a request becomes
slow."""
_WORST_RATIO: Final = 4.0
"""Severity is 1 from this many times the target on."""
_LOG_WORST: Final = math.log(_WORST_RATIO / _ONSET_RATIO)
_SILENT_S: Final = 1.0
_SILENT_REQUESTS: Final = 5.0
"""The application is silent when it has answered nothing for ``_SILENT_S``, or for the time in
which this many requests arrive if that is longer."""
_REPORTED_QUANTILE: Final = 0.95


def check_quantile(scenario: str, quantile: float) -> None:
    """Refuse a target for another quantile than p95, the only one that nodes and twins report.

    Raises:
        ScenarioError: If the target is for another quantile.
    """
    if quantile != _REPORTED_QUANTILE:
        raise ScenarioError(
            f"The target of {scenario!r} is about p{100 * quantile:g}, and policies are rewarded "
            f"by p{100 * _REPORTED_QUANTILE:g} only.",
            next_step="Train on a scenario with quantile = 0.95; `stallward compare` judges any.",
        )


@model
def mean_progress(together: float, count: float) -> float:
    """Mean share of full speed of ``count`` running programs; 1 when none runs.

    Args:
        together: Sum of their shares.
        count: How many programs run.
    """
    return where(count > 0.0, together / maximum(count, 1.0), 1.0)


@model
def severity(latency_ms: float, slo_ms: float) -> float:
    """How badly a latency misses its target: 0 well below it, 1 from four times the target on."""
    ratio = maximum(latency_ms, 1e-6) / (slo_ms * _ONSET_RATIO)
    return minimum(maximum(log(ratio) / _LOG_WORST, 0.0), 1.0)


@model
def window_severity(
    p95_ms: float, age_s: float, running_s: float, slo_ms: float, rate_per_s: float
) -> float:
    """How badly the last second misses its target, as the latency source reports it.

    Args:
        p95_ms: The p95 of the requests answered in that second; NaN where there were none.
        age_s: Seconds since the last answer; NaN before the first one.
        running_s: Seconds since the start.
        slo_ms: The target.
        rate_per_s: Mean rate of arriving requests.

    Returns:
        The :func:`severity` of the p95, or 1 where the application is silent: no answer for a
        second, or for the time in which five requests arrive if that is longer.
    """
    silent_s = where(is_nan(age_s), running_s, age_s)
    late = where(is_nan(p95_ms), 0.0, severity(where(is_nan(p95_ms), slo_ms, p95_ms), slo_ms))
    silent = silent_s > maximum(_SILENT_S, _SILENT_REQUESTS / maximum(rate_per_s, 1e-12))
    return where(silent, 1.0, late)


@model
def excess(latency_ms: float, baseline_ms: float) -> float:
    """How much longer a request took than the latency baseline, as a multiple of the baseline.

    It is negative where the request was faster, and at most :data:`MAX_EXCESS`.
    """
    return minimum(latency_ms / baseline_ms - 1.0, MAX_EXCESS)


@model
def reward(progress: float, paid: float, moved: float, switch_cost: float) -> float:
    """The reward of one tick.

    Args:
        progress: The background's :func:`mean_progress`.
        paid: What the application suffered times its prices, in units of full background speed.
        moved: How many levers moved.
        switch_cost: The cost of one move of one lever.
    """
    return progress - paid - switch_cost * moved


def suffered_array(
    *, window_violated: Array | float, excess: Array | float, slow: Array | float
) -> Array:
    """Put the three figures into one array, in the order of ``SUFFERED``."""
    figures = {"window_violated": window_violated, "excess": excess, "slow": slow}
    return np.array([figures[name] for name in SUFFERED])


@dataclass(frozen=True, slots=True, kw_only=True)
class Slack:
    """What the application may suffer beyond ample memory, as in the targets of the verdict."""

    windows: float = 0.005
    """Share of windows that miss the target, beyond the share with ample memory."""
    excess: float = 0.05
    """Relative growth of the mean latency."""
    slow: float = 0.01
    """Share of slow requests: over 1.15 times the p99 with ample memory."""

    def as_array(self) -> Array:
        """The figures in the order of ``SUFFERED``, ``(len(SUFFERED), 1)``."""
        figures = suffered_array(window_violated=self.windows, excess=self.excess, slow=self.slow)
        return figures[:, np.newaxis]


def scored(progress: Array, suffered: Array, allowed: Array) -> Array:
    """Progress less the largest penalty for suffering beyond the allowance.

    Args:
        progress: An array of any shape.
        suffered: What the application suffered, ``(len(SUFFERED), *progress.shape)``.
        allowed: The allowance; it broadcasts to the shape of ``suffered``.
    """
    beyond = np.maximum(suffered - allowed, 0.0)
    penalties = PENALTIES.reshape((-1,) + (1,) * (beyond.ndim - 1)) * beyond
    return np.asarray(progress - penalties.max(axis=0))


def constrained_score(
    progress: Array, suffered: Array, scenario: NDArray[np.int64], allowed: Array
) -> tuple[float, float]:
    """The score of many episodes: the mean over scenarios of :func:`scored`.

    The allowance holds for the mean over all episodes of a scenario. If it held for each episode
    alone, an unlucky episode would cost something that a lucky one could not make up for.

    Args:
        progress: Progress of each episode.
        suffered: What the application suffered in each, ``(len(SUFFERED), episodes)``.
        scenario: The scenario of each episode, an index into the columns of ``allowed``.
        allowed: The allowance of each scenario, ``(len(SUFFERED), scenarios)``.

    Returns:
        The mean over the scenarios that occur, and its standard error.
    """
    scores, variances = [], []
    for index in np.unique(scenario):
        mine = scenario == index
        means = suffered[:, mine].mean(axis=1)
        scores.append(float(scored(progress[mine].mean(), means, allowed[:, index])))
        penalties = PENALTIES * np.maximum(means - allowed[:, index], 0.0)
        worst = int(np.argmax(penalties))
        price = PENALTIES[worst] if penalties[worst] > 0.0 else 0.0
        episode_scores = progress[mine] - price * suffered[worst, mine]
        count = int(mine.sum())
        variances.append(float(episode_scores.var(ddof=1)) / count if count > 1 else 0.0)
    return float(np.mean(scores)), float(np.sqrt(np.sum(variances)) / len(scores))
