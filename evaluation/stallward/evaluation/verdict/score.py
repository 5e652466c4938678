"""The score by which policies are trained, chosen and tuned, of live blocks. Pure.

Background work less ten times the share of windows that miss the target and of slow requests, and
twice the mean excess of latency, beyond what is allowed
(``stallward.env.simulation.constraints``). What
is usual and what is slow comes from the blocks with ample memory, and varies with them: each
resample takes its own.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from stallward.env.objective import MOST_EXCESS, TAIL, Slack, in_order, scored
from stallward.evaluation.arms import AMPLE
from stallward.evaluation.measures.bootstrap import Array
from stallward.evaluation.measures.contrasts import Estimate
from stallward.evaluation.measures.estimates import Condition, Estimated

_ALLOWED: Final = Slack().as_array()


def score(found: Estimated, label: str) -> Estimate:
    """The score of an arm, against the blocks with ample memory of the same comparison.

    Args:
        found: The comparison.
        label: Its arm, or ``ample``.
    """
    ample, mine = found.known[AMPLE].estimates, found.known[label].estimates
    condition = found.conditions[label]
    excess = _mean_excess(condition, ample.mean_ms)
    slow = _share_over(condition, ample.p99_ms, TAIL)
    kept, usually = mine.slo_attainment, ample.slo_attainment
    value = scored(
        np.array([mine.background_work.value]),
        in_order(window_violated=usually.value - kept.value, excess=excess.value, slow=slow.value)[
            :, np.newaxis
        ],
        _ALLOWED,
    )
    draws = scored(
        mine.background_work.draws,
        in_order(window_violated=usually.draws - kept.draws, excess=excess.draws, slow=slow.draws),
        _ALLOWED,
    )
    return Estimate(value=float(value[0]), draws=draws)


def _mean_excess(condition: Condition, usual: Estimate) -> Estimate:
    """By how many times a usual latency requests take longer, each at most ``MOST_EXCESS``."""
    usual_ms = np.append(usual.draws, usual.value)

    def of_unit(ms: Array) -> Array:
        sums = np.concatenate([[0.0], np.cumsum(ms)])
        below = np.searchsorted(ms, (1.0 + MOST_EXCESS) * usual_ms, side="right")
        return np.asarray(sums[below] / usual_ms - below + MOST_EXCESS * (ms.size - below))

    return _per_request(condition, [of_unit(np.sort(ms)) for ms in condition.latencies()])


def _share_over(condition: Condition, tail: Estimate, factor: float) -> Estimate:
    """Share of requests that take more than ``factor`` times a tail's latency."""
    tail_ms = factor * np.append(tail.draws, tail.value)
    over = [
        ms.size - np.searchsorted(np.sort(ms), tail_ms, side="right").astype(np.float64)
        for ms in condition.latencies()
    ]
    return _per_request(condition, over)


def _per_request(condition: Condition, sums: list[Array]) -> Estimate:
    """Sums of each unit by resample, the estimate last, over the requests that there were."""
    sizes = np.array([float(ms.size) for ms in condition.latencies()])
    counts = np.concatenate([condition.counts, np.ones((1, sizes.size), dtype=np.int64)])
    with np.errstate(divide="ignore", invalid="ignore"):
        rows = np.einsum("bu,ub->b", counts, np.array(sums)) / (counts @ sizes)
    return Estimate(value=float(rows[-1]), draws=rows[:-1])
