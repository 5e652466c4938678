"""What was added to a histogram between two scrapes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from stallward.actuator.latency.feed import MAX_LATENCY_MS, Span
from stallward.actuator.latency.prometheus.histogram import MAX_SERIES, Exposition, Labels, Series


@dataclass(frozen=True, slots=True)
class Increase:
    """The requests observed between two scrapes."""

    spans: tuple[Span, ...]
    """The bounds in ms, and the number of requests between them."""
    total_ms: float


class HistogramIncrease:
    """Computes the increase from each scrape to the next.

    A counter that fell was restarted: all its requests are new. A new series starts from zero.
    Requests above the highest bound count as being at it.

    Args:
        unit_ms: Milliseconds per unit of the bounds.
        recent_s: After a longer gap the increase is too old to be used.
    """

    def __init__(self, unit_ms: float, recent_s: float = 5.0) -> None:
        self._unit_ms = unit_ms
        self._recent_s = recent_s
        self._last: dict[Labels, Series] = {}
        self._last_s: float | None = None

    def take(self, exposition: Exposition, now_s: float) -> Increase | None:
        """Return the increase; ``None`` if there is no recent scrape to compare with.

        Args:
            exposition: The scraped series.
            now_s: When they were scraped, by CLOCK_MONOTONIC.
        """
        gap_s = math.inf if self._last_s is None else now_s - self._last_s
        self._last_s = now_s
        if gap_s > self._recent_s or len(self._last) > MAX_SERIES:
            self._last = dict(exposition.series)
            return None
        added: dict[tuple[float, float], float] = {}
        total, complete = 0.0, True
        for key, series in exposition.series.items():
            before = self._last.get(key)
            if before is not None and _restarted(before, series):
                before = None
            _add_buckets(series, before, added)
            change = _sum_change(series, before)
            complete = complete and change is not None
            total += change or 0.0
        self._last.update(exposition.series)
        spans = tuple(
            (self._ms(low), self._ms(high), count) for (low, high), count in added.items()
        )
        middle_ms = sum((low + high) / 2.0 * count for low, high, count in spans)
        use_sum = complete and 0.0 < total < math.inf
        return Increase(spans=spans, total_ms=total * self._unit_ms if use_sum else middle_ms)

    def _ms(self, bound: float) -> float:
        return min(bound * self._unit_ms, MAX_LATENCY_MS)


def _restarted(before: Series, after: Series) -> bool:
    if before.created != after.created:
        return True
    if before.buckets.keys() != after.buckets.keys():
        return True
    return any(count < before.buckets[bound] for bound, count in after.buckets.items()) or any(
        after.ranges.get(span, 0.0) < count for span, count in before.ranges.items()
    )


def _add_buckets(
    series: Series, before: Series | None, added: dict[tuple[float, float], float]
) -> None:
    """Add the increase of each bucket of a series."""
    low, reached = 0.0, 0.0
    for bound in sorted(series.buckets):
        count = series.buckets[bound]
        gained = count - (before.buckets[bound] if before is not None else 0.0)
        high = max(low if math.isinf(bound) else bound, 0.0)
        # Requests that complete while the page is written may make it a little inconsistent.
        if gained > reached:
            place = (low, high)
            added[place] = added.get(place, 0.0) + gained - reached
            reached = gained
        low = high
    for (first, last), count in series.ranges.items():
        gained = count - (before.ranges.get((first, last), 0.0) if before is not None else 0.0)
        if gained > 0.0:
            low = 0.0 if math.isinf(first) else max(first, 0.0)
            place = (low, low if math.isinf(last) else max(last, low))
            added[place] = added.get(place, 0.0) + gained


def _sum_change(series: Series, before: Series | None) -> float | None:
    """Return by how much the sum grew; ``None`` if that is not known."""
    if series.total is None or not math.isfinite(series.total):
        return None
    if before is None:
        return series.total
    if before.total is None or not math.isfinite(before.total):
        return None
    return series.total - before.total
