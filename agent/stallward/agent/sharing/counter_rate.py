"""How fast a counter grows, as an average in which the past is slowly forgotten. Pure."""

from __future__ import annotations

import math


class CounterRate:
    """The rate of one counter.

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
