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

from dataclasses import dataclass
from typing import Final

from stallward.agent.control_law.thresholds import tuned
from stallward.agent.sample import GroupSample

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


class Lending:
    """The loan of one application.

    Args:
        thresholds: How much is lent, and when.
    """

    def __init__(self, thresholds: LendingThresholds) -> None:
        self._thresholds = thresholds
        self.share = 0.0
        """The loan, as a share of the demand."""
        self._ceiling = thresholds.most_lent_share
        """The most that is lent now: less than the bound after a cut."""
        self._since_cut_s = SETTLE_S
        self.growing = False
        """Whether it grows fast, so that more follows soon; not after a cut."""

    def update(self, latency_ratio: float | None, elapsed_s: float, *, needed: bool) -> float:
        """Take one more look at the latencies.

        Args:
            latency_ratio: The p95 over the target; ``None`` if it is not known.
            elapsed_s: The time since the last update.
            needed: Whether the background can use more than it has without a loan.

        Returns:
            The loan, as a share of the demand.
        """
        thresholds = self._thresholds
        most, before = thresholds.most_lent_share, self.share
        self._since_cut_s += elapsed_s
        if latency_ratio is None or not needed:
            target = 0.0
        elif latency_ratio > thresholds.return_above:
            self._cut(latency_ratio)
            target = min(before, self._ceiling) if before >= LEAST_CUT_SHARE else 0.0
        else:
            self._ceiling = min(self._ceiling + most * elapsed_s / thresholds.retry_s, most)
            low = latency_ratio < thresholds.lend_below
            target = self._ceiling if low else min(before, self._ceiling)
        self._move(target, elapsed_s)
        self.growing = before < self.share < self._ceiling
        return self.share

    def follow(self, target: float, elapsed_s: float) -> float:
        """Lend what somebody else decided, as fast as a loan may change.

        Args:
            target: The loan that is wanted, as a share of the demand.
            elapsed_s: The time since the last update.

        Returns:
            The loan, as a share of the demand.
        """
        before = self.share
        self._since_cut_s += elapsed_s
        self._move(target, elapsed_s)
        self.growing = before < self.share < target
        return self.share

    def hold(self, share: float) -> float:
        """Lend what somebody else decided, from now on and whatever comes of it."""
        self.share, self.growing = share, False
        return share

    def recall(self, used: float, elapsed_s: float) -> None:
        """Return the whole loan at once.

        Args:
            used: How much of it the background holds, as a share of the demand. The next loan is
                smaller than that, unless it is too little to be the reason.
            elapsed_s: The time since the last update.
        """
        self._since_cut_s += elapsed_s
        used = min(used, self.share, self._ceiling)
        if used >= LEAST_CUT_SHARE:
            self._ceiling = BACK_OFF_MISSED_RATIO * used
            self._since_cut_s = 0.0
        self.share, self.growing = 0.0, False

    def _move(self, target: float, elapsed_s: float) -> None:
        thresholds, before = self._thresholds, self.share
        most = thresholds.most_lent_share
        if target > before:
            self.share = min(before + most * elapsed_s / thresholds.lend_s, target)
        else:
            self.share = max(before - most * elapsed_s / thresholds.return_s, target)

    def _cut(self, latency_ratio: float) -> None:
        """Lower the ceiling, unless the last cut may not have shown its effect yet."""
        if self.share >= LEAST_CUT_SHARE and self._since_cut_s >= SETTLE_S:
            ratio = BACK_OFF_RATIO if latency_ratio <= 1.0 else BACK_OFF_MISSED_RATIO
            self._ceiling = ratio * min(self.share, self._ceiling)
            self._since_cut_s = 0.0


def idle_bytes(protected: GroupSample, demand_bytes: float) -> float:
    """The part of the demand that may be idle: all but the anonymous pages.

    Args:
        protected: The application's counters.
        demand_bytes: Its demand.

    Returns:
        The bytes; 0 where anonymous pages are not counted.
    """
    if protected.anon_bytes is None:
        return 0.0
    return max(demand_bytes - protected.anon_bytes - (protected.swap_bytes or 0), 0.0)
