"""The latency baseline: the lowest latency that the application has kept up lately.

An application that takes three times as long as a minute ago suffers, however far its target is.
A policy that does not know the application can see that by comparing with the baseline.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from stallward.agent.observation.average import moved

AVERAGED_S: Final = 8.0
"""Time constant of the moving average whose minimum is the baseline, and the time for which
latencies must have been seen before there is a baseline."""
FORGOTTEN_S: Final = 600.0
"""Time in which a baseline that is not reached again grows by a factor of e, because applications
change."""


@dataclass
class LatencyBaseline:
    """The latency baseline of one application."""

    average_ms: float = math.nan
    """The moving average; NaN before the first latency."""
    averaged_s: float = 0.0
    """The time for which latencies have been seen."""
    usual_ms: float = math.nan
    """The baseline; NaN until latencies have been seen for :data:`AVERAGED_S`."""


def follow_latency(baseline: LatencyBaseline, mean_ms: float, elapsed_s: float) -> None:
    """Update the baseline at one tick.

    Args:
        baseline: The baseline; it is updated.
        mean_ms: Mean latency in the window, NaN without a completed request.
        elapsed_s: Time since the previous tick, not negative; 0 at the first.
    """
    there = not math.isnan(mean_ms)
    begin_ms = mean_ms if math.isnan(baseline.average_ms) else baseline.average_ms
    average_ms = moved(begin_ms, mean_ms, elapsed_s, AVERAGED_S) if there else begin_ms
    averaged_s = baseline.averaged_s + (elapsed_s if there else 0.0)
    usual_ms = baseline.usual_ms * (1.0 + elapsed_s / FORGOTTEN_S)
    lower = there and averaged_s >= AVERAGED_S and not usual_ms <= average_ms
    baseline.average_ms, baseline.averaged_s = average_ms, averaged_s
    baseline.usual_ms = average_ms if lower else usual_ms
