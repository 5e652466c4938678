"""A histogram of latencies from which the percentiles of any time follow.

Percentiles of two windows cannot be added up, but counts can. The buckets are those of DDSketch
(Masson, Rim and Lee, VLDB 2019): nothing in a bucket is further from its middle than
:data:`ERROR_RATIO` of it, so a percentile is off by at most that, whatever the latencies are like.
There are :data:`BUCKETS` of them, from a microsecond to eleven days, so none has to be merged with
its neighbours, as the general form does.

Standard library only: the service adds them up, and must stay small.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Self

from stallward.agent.errors import SchemaError

ERROR_RATIO: Final = 0.01
"""By how much of the true latency a percentile may be off."""
LOWEST_MS: Final = 1e-3
"""The upper bound of bucket 0, and what its requests count as."""
LOG_WIDTH: Final = math.log((1.0 + ERROR_RATIO) / (1.0 - ERROR_RATIO))
"""The logarithm of the upper bound of a bucket over its lower bound."""
BUCKETS: Final = 1383
"""Bucket ``i`` holds the latencies up to ``LOWEST_MS * exp(i * LOG_WIDTH)`` that are in no bucket
before it. The last one ends above 1e9 ms, and no source gives more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyHistogram:
    """How many requests had which latency; only buckets with requests are listed.

    Raises:
        SchemaError: If there is not one count for each bucket.
    """

    buckets: tuple[int, ...] = ()
    """Numbers of buckets, 0 to ``BUCKETS - 1``, ascending."""
    counts: tuple[int, ...] = ()
    """The requests in each of them."""

    def __post_init__(self) -> None:
        if len(self.buckets) != len(self.counts):
            raise SchemaError(
                f"counts has {len(self.counts)} numbers for {len(self.buckets)} buckets."
            )

    @classmethod
    def of(cls, counts: Mapping[int, int]) -> Self:
        """The histogram with these counts, by the numbers of their buckets."""
        buckets = tuple(sorted(counts))
        return cls(buckets=buckets, counts=tuple(counts[bucket] for bucket in buckets))

    @classmethod
    def of_pairs(cls, *, buckets: Iterable[int], counts: Iterable[int]) -> Self:
        """The histogram of buckets and their counts, which may be damaged: as far as both go."""
        return cls.of(dict(zip(buckets, counts, strict=False)))

    def as_counts(self) -> dict[int, int]:
        """The counts by the numbers of their buckets."""
        return dict(zip(self.buckets, self.counts, strict=True))

    @property
    def requests(self) -> int:
        """How many requests it holds."""
        return sum(self.counts)

    def percentile_ms(self, percent: float) -> float | None:
        """The latency that ``percent`` of the requests do not exceed; ``None`` without any.

        It is within :data:`ERROR_RATIO` of the latency of the nearest rank.
        """
        rank = max(math.ceil(percent * self.requests / 100.0), 1)
        for bucket, count in zip(self.buckets, self.counts, strict=True):
            rank -= count
            if rank <= 0:
                return middle_ms(bucket)
        return None


def middle_ms(bucket: int) -> float:
    """The latency that the requests of a bucket count as."""
    if bucket <= 0:
        return LOWEST_MS
    return LOWEST_MS * math.exp(min(bucket, BUCKETS - 1) * LOG_WIDTH) * (1.0 - ERROR_RATIO)


def merged(histograms: Iterable[LatencyHistogram]) -> LatencyHistogram:
    """The requests of all histograms together."""
    counts: Counter[int] = Counter()
    for one in histograms:
        counts.update(one.as_counts())
    return LatencyHistogram.of(counts)
