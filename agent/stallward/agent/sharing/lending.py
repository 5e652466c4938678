"""How much of the application's demand is lent to the background while it does well. Pure.

The demand counts everything that the application holds, and a part of it may be idle: file pages
that it read once and does not read again. Only the kernel knows which, by the order in which it
evicts them. So a part of the demand is lent while latencies are far below the target: the
background may use it, and reclaim takes what the application misses least. When latencies rise,
the loan is cut until they are low enough, and afterwards it grows slowly (additive increase,
multiplicative decrease; Chiu and Jain, 1989). When the application stands and waits for memory,
all of it is returned at once: until its requests are answered, no latency tells of that.

Anonymous pages are not lent. They are kept in memory anyway, so a loan would only make the
background fill the zone. Nothing is lent to applications whose latencies are not known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from stallward.agent.control_law.thresholds import tuned

BACK_OFF_RATIO: Final = 0.7
"""When latencies rise under a loan, it is cut to this share of it."""
BACK_OFF_MISSED_RATIO: Final = 0.3
"""The same when they miss the target."""
LEAST_CUT_SHARE: Final = 0.05
"""A loan smaller than this is not the reason for high latencies: it is returned, and no later one
is smaller because of it."""
SETTLE_S: Final = 2.0
"""The least time between two cuts: latencies take that long to follow."""


@dataclass(frozen=True, kw_only=True)
class LendingThresholds:
    """How much is lent, and when. Between the two latencies the loan stays as it is."""

    most_lent_share: float = tuned(
        0.4, "most that is lent, share of the application's demand", 0.0, 0.8
    )
    lend_below: float = tuned(0.5, "p95 over the target below which more is lent", 0.0, 1.0)
    return_above: float = tuned(0.75, "p95 over the target above which it is cut", 0.0, 1.5)
    lend_s: float = tuned(
        15.0, "time in which all of that is lent, s", 1.0, 600.0, logarithmic=True
    )
    return_s: float = tuned(
        3.0, "time in which all of that is returned, s", 0.1, 60.0, logarithmic=True
    )
    retry_s: float = tuned(
        60.0, "time in which all of that may be lent again after a cut, s", 1.0, 3600.0,
        logarithmic=True,
    )  # fmt: skip
    recall_stall_share: float = tuned(
        0.1, "memory stall of the application at which all is returned, share of the time", 0.002,
        1.0, logarithmic=True,
    )  # fmt: skip


@dataclass(kw_only=True)
class Loan:
    """The loan of one application."""

    lent_share: float = 0.0
    """The loan, as a share of the demand."""
    lent_ceiling: float
    """The most that is lent now: less than the bound after a cut."""
    since_cut_s: float = SETTLE_S


def follow_loan(
    loan: Loan,
    numbers: LendingThresholds,
    elapsed_s: float,
    latency_ratio: float,
    needed: bool,
    followed: float,
    recalled: bool,
    used: float,
) -> bool:
    """Take one more look at the latencies.

    Args:
        loan: The loan; it is updated.
        numbers: How much is lent, and when.
        elapsed_s: The time since the look before.
        latency_ratio: The p95 over the target; NaN if it is not known.
        needed: Whether the background can use more than it has without a loan.
        followed: The share that somebody else decided on; NaN for none.
        recalled: Whether the whole loan is returned at once.
        used: The share that the background holds. After a recall the next loan is smaller than
            that, unless it is too little to be the reason.

    Returns:
        Whether the loan grows fast, so that more follows soon; not after a cut.
    """
    most, before, ceiling = numbers.most_lent_share, loan.lent_share, loan.lent_ceiling
    since_cut_s = loan.since_cut_s + elapsed_s
    free = math.isnan(followed)
    idle = math.isnan(latency_ratio) or not needed
    high = free and not idle and latency_ratio > numbers.return_above
    # The last cut may not have shown its effect yet.
    cut = high and not recalled and before >= LEAST_CUT_SHARE and since_cut_s >= SETTLE_S
    back_off = BACK_OFF_RATIO if latency_ratio <= 1.0 else BACK_OFF_MISSED_RATIO
    used = min(used, before, ceiling)
    blamed = recalled and used >= LEAST_CUT_SHARE
    lowered = back_off * min(before, ceiling) if cut else ceiling
    lowered = BACK_OFF_MISSED_RATIO * used if blamed else lowered
    grows = free and not (idle or high or recalled)
    grown = min(ceiling + most * elapsed_s / numbers.retry_s, most)
    ceiling = grown if grows else lowered
    no_more = min(before, ceiling)
    wanted = ceiling if latency_ratio < numbers.lend_below else no_more
    wanted = (no_more if before >= LEAST_CUT_SHARE else 0.0) if high else wanted
    target = (0.0 if idle else wanted) if free else followed
    higher = min(before + most * elapsed_s / numbers.lend_s, target)
    lower = max(before - most * elapsed_s / numbers.return_s, target)
    share = 0.0 if recalled else higher if target > before else lower
    loan.lent_share, loan.lent_ceiling = share, ceiling
    loan.since_cut_s = 0.0 if cut or blamed else since_cut_s
    return before < share < (ceiling if free else followed)


def idle_bytes(demand: float, anon: float, swap: float) -> float:
    """The part of the demand that may be idle: all but the anonymous pages.

    Args:
        demand: The application's demand.
        anon: Its anonymous pages in memory; NaN where they are not counted, and then nothing is
            idle.
        swap: What it has in swap.
    """
    return max(0.0, demand - (anon + swap))
