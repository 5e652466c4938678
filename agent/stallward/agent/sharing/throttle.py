"""How fast the background may use the disk while it makes the application wait for it. Pure.

Programs that go through files that do not fit keep the disk busy, and the application's own reads
wait behind theirs. Less memory would make such programs read more. So while the application is in
danger and waits for the disk, but does not lack memory, what the background reads and writes is
limited: the limit is cut until the danger is over, and grows slowly afterwards. Both are
multiplicative, because the speeds of disks differ widely.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from stallward.agent.control_law.thresholds import tuned
from stallward.agent.control_law.water_filling import water_fill
from stallward.agent.desired import MIB
from stallward.agent.sample import GroupSample

STEP_S: Final = 2.0
"""The time between two changes of the limit, because latencies take that long to follow; and the
danger, in all, before the first one."""
FORGIVEN_RATIO: Final = 0.25
"""Before the first limit, a second without harm makes up for this part of a second of danger: with
few requests danger comes and goes."""
MEASURE_S: Final = 0.8
"""The least time over which a rate is measured: the counters are not read at every tick."""
CUT_RATIO: Final = 0.7
"""In danger the limit is cut to this share of itself, at first of what is read or written."""
CUT_MISSED_RATIO: Final = 0.5
"""The same when the target is missed."""
LEAST_RATIO: Final = 0.2
"""The limit never falls below this share of what was read or written without: a disk that is idle
for most of the time lets the application wait for little, and what is slow then has other
causes."""
CALM_RATIO: Final = 0.75
"""Below this p95 over the target the limit grows with its time constant."""
BAND_SLOWER: Final = 4.0
"""Between that and danger it grows more slowly by this factor."""
AT_LIMIT_RATIO: Final = 0.8
"""A group that uses more than this share of its limit would use more without."""
IN_FORCE_RATIO: Final = 1.5
"""A group that uses more than this multiple of its limit is not held to it."""


@dataclass(frozen=True, kw_only=True)
class ThrottleThresholds:
    """What is never limited, and how fast a limit grows."""

    least_disk_mib_s: float = tuned(
        16.0, "what a group may read or write at any time, MiB/s", 1.0, 1024.0, logarithmic=True
    )
    disk_growth_s: float = tuned(
        15.0, "time constant with which the limit on the disk grows, s", 2.0, 600.0,
        logarithmic=True,
    )  # fmt: skip


class DiskRate:
    """What one group reads or writes, whichever is more, in bytes/s."""

    def __init__(self) -> None:
        self.bytes_per_s = 0.0
        self._before: tuple[float, int, int] | None = None

    def update(self, group: GroupSample, time_s: float) -> None:
        """Take one more sample; where nothing is counted, as of a group that is gone, it is 0."""
        read, written = group.io_read_bytes, group.io_written_bytes
        if read is None and written is None:
            self.bytes_per_s, self._before = 0.0, None
            return
        read_s = time_s if group.turn_read_s is None else group.turn_read_s
        now = (read_s, read or 0, written or 0)
        if self._before is None or read_s < self._before[0]:
            self._before = now
        passed_s = read_s - self._before[0]
        if passed_s >= MEASURE_S:
            moved = max(now[1] - self._before[1], now[2] - self._before[2], 0)
            self.bytes_per_s = moved / passed_s
            self._before = now


class Throttle:
    """The limits on what the groups of one node read and write.

    Args:
        thresholds: What is never limited, and how fast a limit grows.
    """

    def __init__(self, thresholds: ThrottleThresholds) -> None:
        self._thresholds = thresholds
        self._rates: list[DiskRate] = []
        self._most: float | None = None
        """The most that all limited groups may read or write together; ``None`` for no limit."""
        self._unlimited = 0.0
        """What they did before there was a limit."""
        self._since_step_s = 0.0
        self.limits_bytes_per_s: tuple[int | None, ...] = ()
        """The limit of each group; ``None`` for none."""

    def release(self) -> None:
        """Forget the limits, because nothing is limited any more."""
        self._most, self._since_step_s = None, 0.0
        self.limits_bytes_per_s = (None,) * len(self.limits_bytes_per_s)

    def update(
        self,
        groups: Sequence[GroupSample],
        time_s: float,
        elapsed_s: float,
        *,
        latency_ratio: float | None,
        in_danger: bool,
        harmful: bool,
    ) -> tuple[int | None, ...]:
        """Take one more sample.

        Args:
            groups: The counters of the groups, in slot order.
            time_s: The time of the sample.
            elapsed_s: The time since the sample before.
            latency_ratio: The application's p95 over its target; ``None`` if it is not known.
            in_danger: Whether the application is in danger.
            harmful: Whether it is, waits for the disk, and does not lack memory.

        Returns:
            The limit of each group in bytes/s; ``None`` for none.
        """
        if len(self._rates) != len(groups):
            self._rates = [DiskRate() for _ in groups]
            self.limits_bytes_per_s, self._most = (None,) * len(groups), None
        for rate, group in zip(self._rates, groups, strict=True):
            rate.update(group, time_s)
        if self._most is None and not harmful:
            self._since_step_s = max(self._since_step_s - FORGIVEN_RATIO * elapsed_s, 0.0)
        else:
            self._since_step_s += elapsed_s
        if self._since_step_s >= STEP_S:
            self._since_step_s = 0.0
            self._step(latency_ratio or 0.0, in_danger=in_danger, harmful=harmful)
        return self.limits_bytes_per_s

    def _step(self, ratio: float, *, in_danger: bool, harmful: bool) -> None:
        """Cut the limit, or let it grow."""
        least = self._thresholds.least_disk_mib_s * MIB
        users = [
            index
            for index, rate in enumerate(self._rates)
            if rate.bytes_per_s > least or self.limits_bytes_per_s[index] is not None
        ]
        if harmful and users and self._in_force():
            if self._most is None:
                self._unlimited = sum(self._rates[index].bytes_per_s for index in users)
            cut = CUT_RATIO if ratio <= 1.0 else CUT_MISSED_RATIO
            lowest = max(LEAST_RATIO * self._unlimited, least * len(users))
            self._most = max(cut * (self._most or self._unlimited), lowest)
        elif self._most is not None and not in_danger:
            slower = 1.0 if ratio < CALM_RATIO else BAND_SLOWER
            self._most *= math.exp(STEP_S / (slower * self._thresholds.disk_growth_s))
            if self._most > self._unlimited:
                self._most = None
        self._divide(users, least)

    def _in_force(self) -> bool:
        """Whether no group uses much more than its limit, as if there were none."""
        return all(
            limit is None or rate.bytes_per_s <= IN_FORCE_RATIO * limit
            for rate, limit in zip(self._rates, self.limits_bytes_per_s, strict=True)
        )

    def _divide(self, users: Sequence[int], least: float) -> None:
        limits: list[int | None] = [None] * len(self._rates)
        if self._most is not None and users:
            wants = [self._wanted(index, least) for index in users]
            shares, left = water_fill(self._most, wants, [least] * len(users))
            for index, share in zip(users, shares, strict=True):
                limits[index] = round((share + left / len(users)) / MIB) * MIB
        self.limits_bytes_per_s = tuple(limits)

    def _wanted(self, index: int, least: float) -> float:
        """What a group would read or write, as far as that is known."""
        limit, rate = self.limits_bytes_per_s[index], self._rates[index].bytes_per_s
        if limit is None or rate > AT_LIMIT_RATIO * limit:
            return max(self._most or 0.0, rate)
        return rate + least
