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
from stallward.agent.observation.average import moved
from stallward.agent.sample import Sample, or_nan
from stallward.agent.sharing.counter_rate import CounterRate, followed_rate

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


@dataclass
class Danger:
    """How one application does, and the reserve that is kept for it."""

    mean_ratio: float = math.nan
    """The p95 over the target, averaged; NaN while it is not known."""
    latency_ratio: float = math.nan
    """The same, or nearly the newest where that is worse."""
    stall_share: float = 0.0
    """How much of the time the application waits for memory, averaged; 0 if that is not known."""
    stalled_us: float = math.nan
    """The total of that; NaN where it is not counted."""
    refaults_per_s: float = 0.0
    """The pages that it reads again, averaged."""
    refaulted: float = math.nan
    """The total of that; NaN where it is not counted."""
    danger: float = 0.0
    """The larger ratio of latency and stall to what is danger; 1 or more is danger."""
    reserve_share: float = 0.0
    """The reserve, as a share of the zone."""


def lacks_memory(state: Danger) -> bool:
    """Whether the application waits for memory, or reads pages again that it had.

    Where neither is counted, it counts as lacking memory.
    """
    unknown = math.isnan(state.stalled_us) and math.isnan(state.refaulted)
    stalls = state.stall_share >= LACKING_STALL_SHARE
    return unknown or stalls or state.refaults_per_s >= LACKING_REFAULTS_PER_S


def follow_danger(
    state: Danger,
    numbers: CautionThresholds,
    elapsed_s: float,
    newest_ratio: float,
    age_s: float,
    stalled_us: float,
    refaulted: float,
    short: bool,
) -> None:
    """Take one more look at the application; what is not known is NaN.

    Args:
        state: What is known of it; it is updated.
        numbers: What danger is, and how much is kept because of it.
        elapsed_s: The time since the look before.
        newest_ratio: The p95 over the target of the last second.
        age_s: The time since the last answer.
        stalled_us: How long it has waited for memory, in all.
        refaulted: How many pages it has read again, in all.
        short: Whether the zone has no more memory free than is kept; else more would not help.
    """
    before = state.mean_ratio
    begin = newest_ratio if math.isnan(before) else before
    kept = math.nan if math.isnan(age_s) or age_s > FORGET_S else before
    mean = moved(begin, newest_ratio, elapsed_s, LATENCY_SMOOTHING_S)
    state.mean_ratio = kept if math.isnan(newest_ratio) else mean
    state.latency_ratio = max(state.mean_ratio, NEWEST_WEIGHT * newest_ratio)
    state.stall_share = followed_rate(
        state.stall_share, stalled_us, state.stalled_us, elapsed_s, STALL_SMOOTHING_S, 1e6, 1.0
    )
    refaults = state.refaults_per_s
    state.refaults_per_s = followed_rate(
        refaults, refaulted, state.refaulted, elapsed_s, REFAULT_SMOOTHING_S, 1.0, math.inf
    )
    state.stalled_us, state.refaulted = stalled_us, refaulted
    ratio = 0.0 if math.isnan(state.latency_ratio) else state.latency_ratio
    state.danger = max(ratio / numbers.latency_high, state.stall_share / numbers.stall_high_share)
    reserve = state.reserve_share
    grown = min(reserve + numbers.reserve_per_s * elapsed_s, numbers.most_reserve_share)
    fallen = reserve * math.exp(elapsed_s / -numbers.reserve_release_s)
    grows = short and lacks_memory(state)
    state.reserve_share = fallen if state.danger < 1.0 else grown if grows else reserve


class Caution(Danger):
    """The reserve of one application.

    Args:
        thresholds: What danger is, and how much is kept because of it.
        slo_ms: The latency target.
    """

    def __init__(self, thresholds: CautionThresholds, slo_ms: float) -> None:
        super().__init__()
        self._thresholds = thresholds
        self._slo_ms = slo_ms
        self._waits = CounterRate(REFAULT_SMOOTHING_S, unit=1e6, most=1.0)

    def retarget(self, slo_ms: float) -> None:
        """Go on with another latency target."""
        self.mean_ratio *= self._slo_ms / slo_ms
        self._slo_ms = slo_ms

    def update(self, sample: Sample, elapsed_s: float, *, short: bool) -> float:
        """Take one more sample as :func:`follow_danger` does, and return the reserve's share."""
        latency, psi = sample.latency, sample.protected.psi
        self._waits.update(psi.io_some_us, elapsed_s)
        follow_danger(
            self,
            self._thresholds,
            elapsed_s,
            or_nan(latency.p95_ms if latency else None) / self._slo_ms,
            or_nan(latency.last_completion_age_s if latency else None),
            or_nan(psi.memory_some_us),
            or_nan(sample.protected.refaulted_pages),
            short,
        )
        return self.reserve_share

    @property
    def waits_for_disk(self) -> bool:
        """Whether the application waits for the disk; also where that is not known."""
        return not self._waits.known or self._waits.per_s >= DISK_STALL_SHARE

    @property
    def suffers_from_disk(self) -> bool:
        """Whether the application is in danger and waits for the disk, but lacks no memory."""
        return self.danger >= 1.0 and self.waits_for_disk and not lacks_memory(self)
