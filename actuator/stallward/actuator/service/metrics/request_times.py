"""A Prometheus histogram of request latencies, counted from those that samples bring. Pure.

Standard library only.
"""

from __future__ import annotations

import bisect
from typing import Final

from stallward.agent.latency_histogram import middle_ms
from stallward.proto.v1 import stallward_pb2 as pb

_BOUNDS_S: Final = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip


class RequestTimes:
    """Counts requests by their latency.

    The target is one of the bounds, so that the share of the requests that met it follows exactly.
    A latency is off by at most 1 %, as in the samples.

    Args:
        slo_ms: The latency target.
    """

    def __init__(self, slo_ms: float) -> None:
        self.bounds_s: Final = tuple(sorted({*_BOUNDS_S, slo_ms / 1e3}))
        self.counts: Final = [0] * (len(self.bounds_s) + 1)
        """The count of each bucket, not cumulative; the last bucket has no bound."""
        self.sum_s = 0.0

    def take(self, new: pb.LatencyHistogram) -> None:
        """Count the requests that came since the sample before."""
        for bucket, count in zip(new.buckets, new.counts, strict=False):
            latency_s = middle_ms(bucket) / 1e3
            self.counts[bisect.bisect_left(self.bounds_s, latency_s)] += count
            self.sum_s += count * latency_s
