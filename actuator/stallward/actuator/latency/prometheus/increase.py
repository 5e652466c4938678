"""What was added to a histogram between two scrapes, if both are of the same process.

A total never falls while a process lives. Where one fell, either the process was restarted, and
all its requests are new, or each scrape reaches another one of several workers, and the totals are
those of its whole life. The second must never be taken for the first: it would bring the requests
of hours as if they were of this moment.

A fall is weighed in requests. Where a smaller part of them fell, a series expired, was removed or
belongs to one of many back ends that began anew: that series says nothing this time, and the
others do. Where most fell it is another process. A start time that moves is no evidence without
such a fall: some clients compute it anew for each page, and a gateway has a start of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Final

from stallward.actuator.latency.feed import MAX_LATENCY_MS, MAX_SPANS, Span
from stallward.actuator.latency.prometheus.histogram import MAX_SERIES, Exposition, Labels, Series

MOST_GAINED: Final = 2.0**32
"""More requests than this between two scrapes are no requests; it takes 2**32 such increases to
reach the end of a 64-bit counter."""
_MOST_NEW_PER_S: Final = 10_000.0
"""A series that appears with more requests than this was there before and was not seen."""
_CLOCK_S: Final = 2.0
"""How far a start time may be off: it is often computed from the whole second of the boot."""
_BULK: Final = 0.5
"""Where more than this part of the requests fell, the page is of another process."""
_LEFT: Final = 0.1
"""A series that has at most this part of its requests began anew; another worker has as many."""
_FEW_FLIPS: Final = 3
_SETTLED_SCRAPES: Final = 10
"""After so many scrapes in a row without a fall there is one process, and a fall was a restart."""
_SETTLED_AFTER_FLIPS: Final = 100


class Nothing(Enum):
    """Why a scrape says nothing about the time since the last one."""

    FIRST = "first"
    """There is no recent scrape to compare with."""
    FELL = "fell"
    """Totals fell, and nothing on the page shows that the process was restarted."""
    OTHER_PROCESS = "other-process"
    """They do so again and again."""
    WATCHED = "watched"
    """The page does not say which process it is of, and has not been seen often enough."""
    IMPOSSIBLE = "impossible"
    """More requests were added than any application serves."""


@dataclass(frozen=True, slots=True)
class Increase:
    """The requests observed between two scrapes."""

    spans: tuple[Span, ...]
    """The bounds in ms, and the number of requests between them."""
    total_ms: float


@dataclass(slots=True)
class _Change:
    """What became of each series since the last scrape."""

    gained: list[tuple[Series, Series | None]]
    """Series that went on, each with its last state; ``None`` if it began at zero."""
    known: float = 0.0
    """The requests that all series on the page had before."""
    fell: float = 0.0
    """The part of them in series that fell."""
    began_anew: bool = True
    """Whether all series that fell may have begun at zero since."""
    leapt: bool = False
    """Whether a series grew by more than one does between two scrapes."""
    gone: bool = False
    """Whether there were series and none of them is on the page."""

    @property
    def fell_in_bulk(self) -> bool:
        """Whether most requests are gone."""
        return self.gone or self.fell > _BULK * self.known

    def may_be_one_process(self, *, same_start: bool) -> bool:
        """Whether the page can be a later one of the same process.

        Args:
            same_start: Whether the page says that it is.
        """
        if not self.fell:
            return True
        return self.fell <= _BULK * self.known and (same_start or self.began_anew)


class HistogramIncrease:
    """Computes the increase from each scrape to the next.

    A process that started after the last scrape has served all its requests since. A new series
    starts from zero, and one that fell says nothing until the next scrape. Requests above the
    highest bound count as being at it.

    Args:
        unit_ms: Milliseconds per unit of the bounds.
        recent_s: After a longer gap the increase is too old to be used.
    """

    def __init__(self, unit_ms: float, recent_s: float = 5.0) -> None:
        self._unit_ms = unit_ms
        self._recent_s = recent_s
        self._last: dict[Labels, Series] = {}
        self._last_s = self._last_wall_s = -math.inf
        self._started_s: float | None = None
        self._flips = 0
        self._steady = 0
        self._trusted = False
        self._start_moves = False
        """Whether the page had another start time without that its totals fell."""

    def take(self, exposition: Exposition, now_s: float, wall_s: float) -> Increase | Nothing:
        """Return the increase, or why there is none.

        Args:
            exposition: The scraped series.
            now_s: When they were scraped, by CLOCK_MONOTONIC.
            wall_s: The same in seconds since 1970, as the start times on the page are.
        """
        gap_s, since_s = now_s - self._last_s, (self._last_wall_s, wall_s)
        self._last_s, self._last_wall_s = now_s, wall_s
        started_before = self._started_s
        if exposition.started_s is not None:
            self._started_s = exposition.started_s
        if gap_s > self._recent_s or len(self._last) > MAX_SERIES:
            self._last = dict(exposition.series)
            return Nothing.FIRST
        change = _compare(exposition.series, self._last, since_s, gap_s)
        restarted = change.fell_in_bulk and _is_new(self._started_s, started_before, since_s)
        if restarted:
            self._last.clear()
            change = _compare(exposition.series, self._last, since_s, math.inf)
        moved = not restarted and not _same_start(self._started_s, started_before)
        if moved and not self._start_moves:  # until falls show it, it may be another worker
            self._start_moves = True
            self._steady, self._trusted = 0, False
        self._last.update(exposition.series)
        named = exposition.started_s is not None and not self._start_moves
        steady = restarted or change.may_be_one_process(same_start=named)
        steady = steady and not (moved and change.leapt)
        dated = all(series.created is not None for series in exposition.series.values())
        return self._settled(steady=steady, named=named or dated) or self._sum(change.gained)

    def _settled(self, *, steady: bool, named: bool) -> Nothing | None:
        """Remember a fall; returns why this scrape must not be used, ``None`` if it may be.

        Args:
            steady: Whether the page can be a later one of the same process.
            named: Whether it says which process it is of.
        """
        if not steady:
            self._flips += 1
            self._steady = 0
            return Nothing.FELL if self._flips < _FEW_FLIPS else Nothing.OTHER_PROCESS
        self._steady += 1
        if self._steady > _SETTLED_AFTER_FLIPS:
            self._flips = 0
        if self._flips >= _FEW_FLIPS:
            return Nothing.OTHER_PROCESS
        self._trusted = self._trusted or self._steady > _SETTLED_SCRAPES
        if self._flips and self._steady <= _SETTLED_SCRAPES:
            return Nothing.FELL
        return None if named or self._trusted else Nothing.WATCHED

    def _sum(self, gained: list[tuple[Series, Series | None]]) -> Increase | Nothing:
        added: dict[tuple[float, float], float] = {}
        total, complete = 0.0, True
        for series, before in gained:
            _add_buckets(series, before, added)
            change = _sum_change(series, before)
            complete = complete and change is not None
            total += change or 0.0
        requests = math.fsum(added.values())
        if requests > MOST_GAINED:
            return Nothing.IMPOSSIBLE
        spans = _fewer(
            [(self._ms(low), self._ms(high), count) for (low, high), count in added.items()]
        )
        total_ms = total * self._unit_ms
        # A sum that cannot belong to these requests says nothing; the buckets do.
        if not (complete and 0.0 < total_ms <= MAX_LATENCY_MS * requests):
            total_ms = math.fsum((low + high) / 2.0 * count for low, high, count in spans)
        return Increase(spans=spans, total_ms=total_ms)

    def _ms(self, bound: float) -> float:
        return min(bound * self._unit_ms, MAX_LATENCY_MS)


def _compare(
    series_now: dict[Labels, Series],
    last: dict[Labels, Series],
    since_s: tuple[float, float],
    gap_s: float,
) -> _Change:
    """Compare each series of a page with the one of its name before."""
    change = _Change(gained=[])
    met = False
    for key, series in series_now.items():
        before = last.get(key)
        met = met or before is not None
        if _began_at_zero(series, before, since_s, gap_s):
            change.gained.append((series, None))
        elif before is not None:
            weight = max(before.requests, 1.0)
            change.known += weight
            if _fell(before, series):
                change.fell += weight
                change.began_anew = change.began_anew and (
                    series.requests <= min(_LEFT * before.requests, _MOST_NEW_PER_S * gap_s)
                )
            else:
                change.gained.append((series, before))
                grown = series.requests - before.requests
                change.leapt = change.leapt or grown > _MOST_NEW_PER_S * gap_s
    change.gone = bool(last) and not met
    return change


def _began_at_zero(
    series: Series, before: Series | None, since_s: tuple[float, float], gap_s: float
) -> bool:
    """Whether all requests of a series were served between two scrapes, at ``since_s``."""
    if series.created is None and before is None:
        return series.requests <= _MOST_NEW_PER_S * gap_s
    return _is_new(series.created, before.created if before is not None else None, since_s)


def _is_new(began_s: float | None, before_s: float | None, since_s: tuple[float, float]) -> bool:
    """Whether something began between two scrapes, at ``since_s``."""
    if began_s is None or (before_s is not None and began_s <= before_s):
        return False
    return since_s[0] - _CLOCK_S < began_s <= since_s[1] + _CLOCK_S


def _same_start(after_s: float | None, before_s: float | None) -> bool:
    """Whether two start times may be those of one process.

    Some clients compute the start anew for each page, from the time of the boot. The kernel gives
    that in whole seconds, and moves it by one when the clock is adjusted.
    """
    if after_s is None or before_s is None:
        return True
    return min(abs(after_s - before_s), abs(abs(after_s - before_s) - 1.0)) < 1e-3


def _fell(before: Series, after: Series) -> bool:
    """Whether a series cannot be a later state of itself."""
    # Some clients leave out buckets that hold nothing yet, so a bucket may appear, but not go.
    return (
        before.created != after.created
        or any(after.buckets.get(bound, -1.0) < count for bound, count in before.buckets.items())
        or any(after.ranges.get(span, 0.0) < count for span, count in before.ranges.items())
    )


def _add_buckets(
    series: Series, before: Series | None, added: dict[tuple[float, float], float]
) -> None:
    """Add the increase of each bucket of a series.

    A bucket holds all requests of those with lower bounds. So one that holds fewer, since requests
    completed while the page was written, counts as holding as many; and so does one that an
    earlier page left out.
    """
    earlier = before.buckets if before is not None else {}
    most = max(series.buckets.values(), default=0.0) - max(earlier.values(), default=0.0)
    low = reached = now = then = 0.0
    for bound in sorted(series.buckets):
        now, then = max(now, series.buckets[bound]), max(then, earlier.get(bound, 0.0))
        gained = min(now - then, most)
        high = max(low if math.isinf(bound) else bound, 0.0)
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


def _fewer(spans: list[Span]) -> tuple[Span, ...]:
    """Return spans of the same requests, as many as a message holds: neighbours become one."""
    if len(spans) <= MAX_SPANS:
        return tuple(spans)
    spans.sort(key=lambda span: span[1])
    step = math.ceil(len(spans) / MAX_SPANS)
    parts = [spans[i : i + step] for i in range(0, len(spans), step)]
    return tuple(
        (min(part)[0], part[-1][1], math.fsum(count for _, _, count in part)) for part in parts
    )
