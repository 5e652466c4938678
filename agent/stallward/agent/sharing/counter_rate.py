"""The time between two looks, and how fast a counter grows from one to the next. Pure."""

from __future__ import annotations

import math
from typing import Final

LONGEST_S: Final = 15.0
"""The longest time between two looks that tells what happened in between: half as much again as the
longest period of ticks, since ticks may be late."""


def elapsed_since(before_s: float | None, time_s: float) -> float:
    """The time since the look before; 0 where that says nothing, as at the first look.

    A controller is not asked while a client decides. What counters count meanwhile happens under
    the limits of that client, and latencies of that time are not seen. So the first look after it
    only shows where the counters are, and averages and sums continue with the second.

    Args:
        before_s: The time of the look before; ``None`` if there was none.
        time_s: The time now.
    """
    passed_s = 0.0 if before_s is None else time_s - before_s
    return passed_s if 0.0 < passed_s <= LONGEST_S else 0.0


class CounterRate:
    """The rate of one counter, as an average in which the past is slowly forgotten.

    Args:
        smoothing_s: The time constant of the average.
        most_per_s: The largest rate that there can be.
    """

    def __init__(self, smoothing_s: float, most_per_s: float = math.inf) -> None:
        self._smoothing_s = smoothing_s
        self._most_per_s = most_per_s
        self._total: int | None = None
        self.per_s = 0.0
        """The rate, averaged."""

    @property
    def known(self) -> bool:
        """Whether the counter was there in the last sample."""
        return self._total is not None

    def update(self, total: int | None, elapsed_s: float) -> float:
        """Take one more reading; without one the rate stays.

        Args:
            total: The counter; ``None`` where it is not there.
            elapsed_s: The time since the reading before.

        Returns:
            The rate, averaged.
        """
        before, self._total = self._total, total
        if total is not None and before is not None and elapsed_s > 0.0:
            per_s = min(max(total - before, 0) / elapsed_s, self._most_per_s)
            weight = 1.0 - math.exp(-elapsed_s / self._smoothing_s)
            self.per_s += weight * (per_s - self.per_s)
        return self.per_s
