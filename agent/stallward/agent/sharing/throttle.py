"""How fast the background may read while it makes the application wait for the disk. Pure.

Programs that go through files that do not fit keep the disk busy, and the application's own reads
wait behind theirs. Less memory would make such programs read more. So while the application is in
danger although it does not lack memory, what the background reads is limited: the limit is cut
until the danger is over, and grows slowly afterwards. Both are multiplicative, because the speeds
of disks differ widely.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from stallward.agent.control_law.thresholds import tuned
from stallward.agent.desired import MIB
from stallward.agent.sample import GroupSample
from stallward.agent.sharing.water_filling import water_fill

STEP_S: Final = 2.0
"""The time between two changes of the limit, and before the first one: latencies take that long to
follow."""
CUT_RATIO: Final = 0.7
"""In danger the limit is cut to this share of what is read."""
CUT_MISSED_RATIO: Final = 0.5
"""The same when the target is missed."""
LEAST_RATIO: Final = 0.2
"""The limit never falls below this share of what was read without: a disk that is idle for most of
the time lets the application wait for little, and what is slow then has other causes."""
CALM_RATIO: Final = 0.75
"""Below this p95 over the target the limit grows."""
SMOOTHING_S: Final = 1.0
"""The time constant of the average of what a group reads."""
AT_LIMIT_RATIO: Final = 0.8
"""A group that reads more than this share of its limit would read more without."""


@dataclass(frozen=True, kw_only=True)
class ThrottleThresholds:
    """What is never limited, and how fast a limit grows."""

    least_read_mib_s: float = tuned(
        16.0, "what a group may read at any time, MiB/s", 1.0, 1024.0, logarithmic=True
    )
    read_growth_s: float = tuned(
        15.0, "time constant with which the limit on reads grows, s", 2.0, 600.0, logarithmic=True
    )


class Throttle:
    """The limits on what the groups of one node read.

    Args:
        thresholds: What is never limited, and how fast a limit grows.
    """

    def __init__(self, thresholds: ThrottleThresholds) -> None:
        self._thresholds = thresholds
        self._before: tuple[int | None, ...] = ()
        self._rates: list[float] = []
        """What each group reads, averaged, bytes/s."""
        self._most: float | None = None
        """The most that all limited groups may read together, bytes/s; ``None`` for no limit."""
        self._unlimited = 0.0
        """What they read before there was a limit."""
        self._since_step_s = 0.0
        self.limits_bytes_per_s: tuple[int | None, ...] = ()
        """The limit of each group; ``None`` for none."""

    def update(
        self,
        groups: Sequence[GroupSample],
        elapsed_s: float,
        *,
        latency_ratio: float | None,
        harmful: bool,
    ) -> tuple[int | None, ...]:
        """Take one more sample.

        Args:
            groups: The counters of the groups, in slot order.
            elapsed_s: The time since the sample before.
            latency_ratio: The application's p95 over its target; ``None`` if it is not known.
            harmful: Whether the application is in danger and does not lack memory.

        Returns:
            The limit of each group in bytes/s; ``None`` for none.
        """
        self._measure(groups, elapsed_s)
        idle = self._most is None and not harmful
        self._since_step_s = 0.0 if idle else self._since_step_s + elapsed_s
        if len(self.limits_bytes_per_s) != len(groups):
            self.limits_bytes_per_s, self._most = (None,) * len(groups), None
        if self._since_step_s >= STEP_S:
            self._step(latency_ratio, harmful=harmful)
        return self.limits_bytes_per_s

    def _measure(self, groups: Sequence[GroupSample], elapsed_s: float) -> None:
        now = tuple(group.io_read_bytes for group in groups)
        before, self._before = self._before, now
        if len(before) != len(now):
            self._rates = [0.0] * len(now)
        elif elapsed_s > 0.0:
            weight = 1.0 - math.exp(-elapsed_s / SMOOTHING_S)
            for index, (last, this) in enumerate(zip(before, now, strict=True)):
                read = 0 if last is None or this is None else max(this - last, 0)
                self._rates[index] += weight * (read / elapsed_s - self._rates[index])

    def _step(self, latency_ratio: float | None, *, harmful: bool) -> None:
        """Cut the limit, or let it grow."""
        least = self._thresholds.least_read_mib_s * MIB
        readers = [
            index
            for index, rate in enumerate(self._rates)
            if rate > least or self.limits_bytes_per_s[index] is not None
        ]
        ratio = latency_ratio or 0.0
        read = sum(self._rates[index] for index in readers)
        if harmful and readers:
            if self._most is None:
                self._unlimited = read
            cut = CUT_RATIO if ratio <= 1.0 else CUT_MISSED_RATIO
            lowest = max(LEAST_RATIO * self._unlimited, least * len(readers))
            self._most = max(cut * min(read, self._most or read), lowest)
        elif self._most is not None and ratio < CALM_RATIO:
            self._most *= math.exp(self._since_step_s / self._thresholds.read_growth_s)
            if self._most > self._unlimited:
                self._most = None
        else:
            return
        self._since_step_s = 0.0
        self._divide(readers, least)

    def _divide(self, readers: Sequence[int], least: float) -> None:
        limits: list[int | None] = [None] * len(self._rates)
        if self._most is not None:
            wants = [self._wanted(index, least) for index in readers]
            shares, left = water_fill(self._most, wants, [least] * len(readers))
            for index, share in zip(readers, shares, strict=True):
                limits[index] = round((share + left / len(readers)) / MIB) * MIB
        self.limits_bytes_per_s = tuple(limits)

    def _wanted(self, index: int, least: float) -> float:
        """What a group would read, as far as that is known."""
        limit, rate = self.limits_bytes_per_s[index], self._rates[index]
        if limit is None or rate > AT_LIMIT_RATIO * limit:
            return max(self._most or 0.0, rate)
        return rate + least
