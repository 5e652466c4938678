"""The latency baseline: the lowest latency that the application has kept up lately.

An application that takes three times as long as a minute ago suffers, however far its target is.
A policy that does not know the application can see that by comparing with the baseline.
"""

from __future__ import annotations

import math
from typing import Final

AVERAGED_S: Final = 8.0
"""Time constant of the moving average whose minimum is the baseline, and the time for which
latencies must have been seen before there is a baseline."""
FORGOTTEN_S: Final = 600.0
"""Time in which a baseline that is not reached again grows by a factor of e, because applications
change."""


class LatencyBaseline:
    """Keeps the latency baseline of one application."""

    def __init__(self) -> None:
        self._average_ms = math.nan
        self._baseline_ms = math.nan
        self._averaged_s = 0.0

    def update(self, mean_ms: float, elapsed_s: float | None) -> float:
        """Update the baseline at one tick.

        Args:
            mean_ms: Mean latency in the window, NaN without a completed request.
            elapsed_s: Time since the previous tick; ``None`` starts again.

        Returns:
            The baseline in ms; NaN until latencies have been seen for :data:`AVERAGED_S`.
        """
        if elapsed_s is None:
            self._average_ms, self._baseline_ms, self._averaged_s = mean_ms, math.nan, 0.0
            return math.nan
        elapsed_s = max(elapsed_s, 0.0)
        self._baseline_ms *= 1.0 + elapsed_s / FORGOTTEN_S
        if not math.isnan(mean_ms):
            if math.isnan(self._average_ms):
                self._average_ms = mean_ms
            share = 1.0 - math.exp(-elapsed_s / AVERAGED_S)
            self._average_ms += (mean_ms - self._average_ms) * share
            self._averaged_s += elapsed_s
            if self._averaged_s >= AVERAGED_S and not self._baseline_ms <= self._average_ms:
                self._baseline_ms = self._average_ms
        return self._baseline_ms
