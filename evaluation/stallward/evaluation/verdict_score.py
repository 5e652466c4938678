"""The score by which policies are trained, chosen and tuned, of live blocks. Pure.

Background work less ten times the share of windows that miss the target and of slow requests, and
twice the mean excess of latency, beyond what is allowed (``stallward.training.constraints``).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from stallward.env.reward import MOST_EXCESS, TAIL
from stallward.evaluation.contrasts import Estimate
from stallward.evaluation.estimates import Estimated
from stallward.evaluation.plan import AMPLE
from stallward.training.constraints import Slack, scored

_ALLOWED: Final = Slack().as_array()


def score(found: Estimated, label: str) -> Estimate:
    """The score of an arm, against the blocks with ample memory of the same comparison.

    Args:
        found: The comparison.
        label: Its arm, or ``ample``.
    """
    ample, mine = found.known[AMPLE].estimates, found.known[label].estimates
    condition = found.conditions[label]
    usual_ms, tail_ms = ample["mean_ms"].value, TAIL * ample["p99_ms"].value
    latencies = [block.latency_ms for block in condition.blocks]
    excess = condition.mean([np.minimum(ms / usual_ms - 1.0, MOST_EXCESS) for ms in latencies])
    slow = condition.mean([(ms > tail_ms).astype(np.float64) for ms in latencies])
    kept, usually = mine["slo_attainment"], ample["slo_attainment"]
    value = scored(
        np.array([mine["background_work"].value]),
        np.array([[usually.value - kept.value], [excess.value], [slow.value]]),
        _ALLOWED,
    )
    draws = scored(
        mine["background_work"].draws,
        np.array([usually.draws - kept.draws, excess.draws, slow.draws]),
        _ALLOWED,
    )
    return Estimate(value=float(value[0]), draws=draws)
