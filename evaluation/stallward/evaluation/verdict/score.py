"""The score of live blocks, by which policies are also trained, chosen and tuned. Pure.

The score is background work less the largest of three penalties (``stallward.env.objective``): ten
times the share of missed windows, ten times that of slow requests, and twice the mean excess of
latency, each beyond what is allowed. The latency baseline and the threshold of a slow request come
from the blocks with ample memory, so each resample computes its own.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from stallward.env.objective import MAX_EXCESS, SLOW_RATIO, Slack, scored, suffered_array
from stallward.evaluation.arms import AMPLE
from stallward.evaluation.measures.bootstrap import Array
from stallward.evaluation.measures.contrasts import Estimate
from stallward.evaluation.measures.estimates import ComparisonEstimates, Condition

_ALLOWED: Final = Slack().as_array()


def score(comparison: ComparisonEstimates, label: str) -> Estimate:
    """The score of an arm, relative to the blocks with ample memory of the same comparison.

    Args:
        comparison: The estimates of the comparison.
        label: The label of the arm, or ``ample``.
    """
    ample = comparison.figures[AMPLE].estimates
    own = comparison.figures[label].estimates
    condition = comparison.conditions[label]
    excess = _mean_excess(condition, ample.mean_ms)
    slow = _share_over(condition, ample.p99_ms, SLOW_RATIO)
    attainment, baseline = own.slo_attainment, ample.slo_attainment
    value = scored(
        np.array([own.background_work.value]),
        suffered_array(
            window_violated=baseline.value - attainment.value,
            excess=excess.value,
            slow=slow.value,
        )[:, np.newaxis],
        _ALLOWED,
    )
    draws = scored(
        own.background_work.draws,
        suffered_array(
            window_violated=baseline.draws - attainment.draws,
            excess=excess.draws,
            slow=slow.draws,
        ),
        _ALLOWED,
    )
    return Estimate(value=float(value[0]), draws=draws)


def _mean_excess(condition: Condition, baseline: Estimate) -> Estimate:
    """The mean excess of requests over the latency baseline, in multiples of it.

    The excess of one request counts as at most ``MAX_EXCESS``.
    """
    baseline_ms = np.append(baseline.draws, baseline.value)

    def unit_sums(ms: Array) -> Array:
        sums = np.concatenate([[0.0], np.cumsum(ms)])
        below = np.searchsorted(ms, (1.0 + MAX_EXCESS) * baseline_ms, side="right")
        return np.asarray(sums[below] / baseline_ms - below + MAX_EXCESS * (ms.size - below))

    return _per_request(condition, [unit_sums(np.sort(ms)) for ms in condition.latencies()])


def _share_over(condition: Condition, tail: Estimate, factor: float) -> Estimate:
    """The share of requests that take more than ``factor`` times the latency ``tail``."""
    tail_ms = factor * np.append(tail.draws, tail.value)
    over = [
        ms.size - np.searchsorted(np.sort(ms), tail_ms, side="right").astype(np.float64)
        for ms in condition.latencies()
    ]
    return _per_request(condition, over)


def _per_request(condition: Condition, sums: list[Array]) -> Estimate:
    """The mean per request, from the sums of each unit by resample, with the estimate last."""
    sizes = np.array([float(ms.size) for ms in condition.latencies()])
    counts = np.concatenate([condition.counts, np.ones((1, sizes.size), dtype=np.int64)])
    with np.errstate(divide="ignore", invalid="ignore"):
        rows = np.einsum("bu,ub->b", counts, np.array(sums)) / (counts @ sizes)
    return Estimate(value=float(rows[-1]), draws=rows[:-1])
