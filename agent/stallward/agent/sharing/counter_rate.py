"""The time between two looks, and how fast a counter grows from one to the next. Pure."""

from __future__ import annotations

import math
from typing import Final

from stallward.agent.observation.average import moved
from stallward.agent.sample import or_nan

LONGEST_S: Final = 15.0
"""The longest time between two looks that tells what happened in between: half as much again as the
longest period of ticks, since ticks may be late."""


def elapsed_since(before_s: float, time_s: float) -> float:
    """The time since the look before; 0 where that says nothing, as at the first look.

    A controller is not asked while a client decides. What counters count meanwhile happens under
    the limits of that client, and latencies of that time are not seen. So the first look after it
    only shows where the counters are, and averages and sums continue with the second.

    Args:
        before_s: The time of the look before; NaN if there was none.
        time_s: The time now.
    """
    passed_s = time_s - before_s
    return passed_s if 0.0 < passed_s <= LONGEST_S else 0.0


def followed_rate(
    rate: float,
    total: float,
    before: float,
    elapsed_s: float,
    smoothing_s: float,
    unit: float,
    most: float,
) -> float:
    """The average ``rate`` of a counter after one more reading of it, which is NaN if not there.

    It is at most ``most``; at a rate of 1 the counter grows by ``unit`` in a second. The rate of a
    counter that is not there any more fades, as after the end of what it was counted for.
    """
    known = elapsed_s > 0.0 and not (math.isnan(total) or math.isnan(before))
    unread = 0.0 if math.isnan(total) else rate
    now = min(max(total - before, 0.0) / (unit * elapsed_s), most) if known else unread
    return moved(rate, now, elapsed_s, smoothing_s)


class CounterRate:
    """The rate of one counter.

    Args:
        smoothing_s: The time constant of its average.
        unit: How much the counter grows by in a second at a rate of 1.
        most: The largest rate that there can be.
    """

    def __init__(self, smoothing_s: float, *, unit: float = 1.0, most: float = math.inf) -> None:
        self._smoothing_s, self._unit, self._most = smoothing_s, unit, most
        self._total = math.nan
        self.per_s = 0.0
        """The rate, averaged."""

    @property
    def known(self) -> bool:
        """Whether the counter was there in the last sample."""
        return not math.isnan(self._total)

    def update(self, total: int | None, elapsed_s: float) -> None:
        """Take one more reading: the counter, and the time since the reading before."""
        before, self._total = self._total, or_nan(total)
        self.per_s = followed_rate(
            self.per_s, self._total, before, elapsed_s, self._smoothing_s, self._unit, self._most
        )
