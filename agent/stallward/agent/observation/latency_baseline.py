"""What latency is usual for the application: the least that it has kept up of late.

Whether a target is far or near, an application that takes three times as long as it did a minute
ago has lost something, and a policy that does not know the application can see it from this.
"""

from __future__ import annotations

import math
from typing import Final

AVERAGED_S: Final = 8.0
"""Time constant of the average whose least value counts, and how long it takes to be known."""
FORGOTTEN_S: Final = 600.0
"""In so long the usual latency grows by e where it is not reached again: applications change."""


class LatencyBaseline:
    """Follows the mean latency of one application."""

    def __init__(self) -> None:
        self._average_ms = math.nan
        self._usual_ms = math.nan
        self._averaged_s = 0.0

    def follow(self, mean_ms: float, elapsed_s: float | None) -> float:
        """Take a tick in.

        Args:
            mean_ms: Mean latency in the window, NaN without a completed request.
            elapsed_s: Since the tick before; ``None`` starts again.

        Returns:
            The usual latency in ms; NaN until :data:`AVERAGED_S` of latencies have been seen.
        """
        if elapsed_s is None:
            self._average_ms, self._usual_ms, self._averaged_s = mean_ms, math.nan, 0.0
            return math.nan
        elapsed_s = max(elapsed_s, 0.0)
        self._usual_ms *= 1.0 + elapsed_s / FORGOTTEN_S
        if not math.isnan(mean_ms):
            if math.isnan(self._average_ms):
                self._average_ms = mean_ms
            share = 1.0 - math.exp(-elapsed_s / AVERAGED_S)
            self._average_ms += (mean_ms - self._average_ms) * share
            self._averaged_s += elapsed_s
            if self._averaged_s >= AVERAGED_S and not self._usual_ms <= self._average_ms:
                self._usual_ms = self._average_ms
        return self._usual_ms
