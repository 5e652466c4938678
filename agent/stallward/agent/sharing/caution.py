"""How much memory is kept free beside the application's demand, by how the application does. Pure.

The demand is an estimate, and reclaim never takes exactly the right pages. While the application
is in danger and lacks memory although its demand is free for it, more is kept for it, step by
step; when the danger is over, that is given back slowly. It only takes from the background.

Danger does not always come from memory. An application that neither waits for memory nor misses
pages that it had would gain nothing by more of it, and the background would read more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from stallward.agent.control_law.thresholds import tuned
from stallward.agent.sample import Sample
from stallward.agent.sharing.counter_rate import CounterRate

LATENCY_SMOOTHING_S: Final = 3.0
"""The time constant of the average of the latency: with few requests, the p95 of a second is that
of its slowest request."""
NEWEST_WEIGHT: Final = 0.8
"""How much the newest latency counts where it is worse than the average."""
STALL_SMOOTHING_S: Final = 1.0
REFAULT_SMOOTHING_S: Final = 3.0
FORGET_S: Final = 10.0
"""After this time without an answer the last latency no longer counts."""
LACKING_STALL_SHARE: Final = 0.01
"""An application that waits for memory for this share of the time lacks some."""
LACKING_REFAULTS_PER_S: Final = 50.0
"""So does one that reads as many pages again, per second."""
DISK_STALL_SHARE: Final = 0.02
"""An application that waits for the disk for this share of the time is slowed down by it."""


@dataclass(frozen=True, kw_only=True)
class CautionThresholds:
    """What danger is, and how much is kept because of it."""

    latency_high: float = tuned(0.9, "p95 over the target that is danger", 0.3, 1.5)
    stall_high_share: float = tuned(
        0.1, "memory stall of the application that is danger, share of the time", 0.002, 0.9,
        logarithmic=True,
    )  # fmt: skip
    reserve_per_s: float = tuned(
        0.04, "how fast the reserve grows in danger, share of the zone per second", 0.0, 1.0
    )
    most_reserve_share: float = tuned(0.2, "largest reserve, share of the zone", 0.0, 0.5)
    reserve_release_s: float = tuned(
        20.0, "time constant with which the reserve falls without danger, s", 1.0, 600.0,
        logarithmic=True,
    )  # fmt: skip


class Caution:
    """The reserve of one application.

    Args:
        thresholds: What danger is, and how much is kept because of it.
        slo_ms: The latency target.
    """

    def __init__(self, thresholds: CautionThresholds, slo_ms: float) -> None:
        self._thresholds = thresholds
        self._slo_ms = slo_ms
        self.latency_ratio: float | None = None
        """The p95 over the target, averaged, or nearly the newest where that is worse; ``None``
        while it is not known."""
        self._mean_ratio: float | None = None
        self._stalls_us = CounterRate(STALL_SMOOTHING_S, most_per_s=1e6)
        self._waits_us = CounterRate(REFAULT_SMOOTHING_S, most_per_s=1e6)
        self._refaults = CounterRate(REFAULT_SMOOTHING_S)
        self.lacks_memory = False
        """Whether the application waits for memory, or reads pages again that it had. Where
        neither is counted, it counts as lacking memory."""
        self.stall_share = 0.0
        """How much of the time the application waits for memory, averaged; 0 if that is not
        known."""
        self.danger = 0.0
        """The larger ratio of latency and stall to what is danger; 1 or more is danger."""
        self.reserve_share = 0.0
        """The reserve, as a share of the zone."""

    def retarget(self, slo_ms: float) -> None:
        """Go on with another latency target."""
        if self._mean_ratio is not None:
            self._mean_ratio *= self._slo_ms / slo_ms
        self._slo_ms = slo_ms

    def update(self, sample: Sample, elapsed_s: float, *, short: bool) -> float:
        """Take one more sample.

        Args:
            sample: The sample.
            elapsed_s: The time since the sample before.
            short: Whether the zone has no more memory free than is kept: only then does keeping
                more help.

        Returns:
            The reserve, as a share of the zone.
        """
        thresholds = self._thresholds
        self.latency_ratio = self._latency(sample, elapsed_s)
        psi = sample.protected.psi
        stall_share = self.stall_share = 1e-6 * self._stalls_us.update(
            psi.memory_some_us, elapsed_s
        )
        refaults_per_s = self._refaults.update(sample.protected.refaulted_pages, elapsed_s)
        self._waits_us.update(psi.io_some_us, elapsed_s)
        self.danger = max(
            (self.latency_ratio or 0.0) / thresholds.latency_high,
            stall_share / thresholds.stall_high_share,
        )
        self.lacks_memory = (
            not (self._stalls_us.known or self._refaults.known)
            or stall_share >= LACKING_STALL_SHARE
            or refaults_per_s >= LACKING_REFAULTS_PER_S
        )
        if self.danger >= 1.0 and short and self.lacks_memory:
            grown = self.reserve_share + thresholds.reserve_per_s * elapsed_s
            self.reserve_share = min(grown, thresholds.most_reserve_share)
        elif self.danger < 1.0:
            self.reserve_share *= math.exp(-elapsed_s / thresholds.reserve_release_s)
        return self.reserve_share

    def _latency(self, sample: Sample, elapsed_s: float) -> float | None:
        latency = sample.latency
        if latency is None or latency.p95_ms is None:
            age_s = None if latency is None else latency.last_completion_age_s
            if age_s is None or age_s > FORGET_S:
                self._mean_ratio = None
            return self._mean_ratio
        newest = latency.p95_ms / self._slo_ms
        if self._mean_ratio is None:
            self._mean_ratio = newest
        weight = 1.0 - math.exp(-elapsed_s / LATENCY_SMOOTHING_S)
        self._mean_ratio += weight * (newest - self._mean_ratio)
        return max(self._mean_ratio, NEWEST_WEIGHT * newest)

    @property
    def suffers_from_disk(self) -> bool:
        """Whether the application is in danger and waits for the disk, but lacks no memory.

        Where it is not known how long it waits, it counts as waiting.
        """
        waits = not self._waits_us.known or 1e-6 * self._waits_us.per_s >= DISK_STALL_SHARE
        return self.danger >= 1.0 and waits and not self.lacks_memory
