"""The loan of the application's idle memory, as in ``stallward.agent.sharing.lending``."""

from __future__ import annotations

from stallward.agent.sharing.lending import (
    BACK_OFF_MISSED_RATIO,
    BACK_OFF_RATIO,
    LEAST_CUT_SHARE,
    SETTLE_S,
)
from stallward.env.simulation.sharing.state import Numbers, Sharing
from stallward.env.twin.simd.jit import model
from stallward.env.twin.simd.values import is_nan, maximum, minimum, negate, where


@model
def update_loan(
    sharing: Sharing,
    numbers: Numbers,
    elapsed_s: float,
    needed: bool,
    followed: float,
    used: float,
) -> None:
    """Update the loan.

    Args:
        sharing: The state of the rule.
        numbers: Its numbers.
        elapsed_s: The time since the tick before.
        needed: Whether the background can use more than it has without a loan.
        followed: The loan that a set-point asks for, a share of the demand; NaN for none.
        used: How much of the loan the background holds, a share of the demand.
    """
    most, before, ratio = numbers.most_lent_share, sharing.lent_share, sharing.latency_ratio
    auto = is_nan(followed)
    sharing.since_cut_s = sharing.since_cut_s + elapsed_s
    idle = is_nan(ratio) | negate(needed)
    recalled = sharing.stall_share >= numbers.recall_stall_share
    used = minimum(minimum(used, before), sharing.lent_ceiling)
    high = auto & negate(idle) & (ratio > numbers.return_above)
    cut = high & (before >= LEAST_CUT_SHARE) & (sharing.since_cut_s >= SETTLE_S)
    factor = where(ratio <= 1.0, BACK_OFF_RATIO, BACK_OFF_MISSED_RATIO)
    regrown = minimum(sharing.lent_ceiling + most * elapsed_s / numbers.retry_s, most)
    grows = auto & negate(idle | high)
    ceiling = where(grows, regrown, sharing.lent_ceiling)
    ceiling = where(cut, factor * minimum(before, ceiling), ceiling)
    blamed = recalled & (used >= LEAST_CUT_SHARE)
    kept = where(blamed, BACK_OFF_MISSED_RATIO * used, sharing.lent_ceiling)
    sharing.lent_ceiling = where(recalled, kept, ceiling)
    cut = blamed | (cut & negate(recalled))
    sharing.since_cut_s = where(cut, 0.0, sharing.since_cut_s)
    no_more = minimum(before, ceiling)
    target = where(ratio < numbers.lend_below, ceiling, no_more)
    target = where(high, where(before >= LEAST_CUT_SHARE, no_more, 0.0), target)
    target = where(auto, where(idle, 0.0, target), followed)
    higher = minimum(before + most * elapsed_s / numbers.lend_s, target)
    lower = maximum(before - most * elapsed_s / numbers.return_s, target)
    share = where(target > before, higher, lower)
    sharing.lent_share = where(recalled, 0.0, share)
    grown = negate(recalled) & (before < share) & (share < where(auto, ceiling, followed))
    sharing.lending_grows = where(grown, 1.0, 0.0)
