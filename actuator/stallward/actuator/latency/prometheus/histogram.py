"""A classic Prometheus histogram: its text format, and its increase between two scrapes.

Only lines of one metric are parsed, so that a page of megabytes costs little. Both the
Prometheus text format 0.0.4 and OpenMetrics 1.0 are understood (their lines for a histogram
differ in time stamps, exemplars and ``_created``, which are skipped or used). Format:
https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Final

from stallward.actuator.latency.feed import MAX_LATENCY_MS, Span
from stallward.actuator.latency.prometheus.selector import Selector

_LABEL: Final = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|(?=\}))')
_LABELS_END: Final = re.compile(r"\s*\}")
_ESCAPE: Final = re.compile(r"\\(.)")
_VALUE: Final = re.compile(
    r"\s*([+-]?(?:[0-9]+\.?[0-9]*(?:e[+-]?[0-9]+)?|\.[0-9]+(?:e[+-]?[0-9]+)?|inf|nan))(?=\s|$)",
    re.IGNORECASE,
)
MAX_SERIES: Final = 10_000
MAX_REQUESTS: Final = 2.0**48
"""The most requests in a bucket; the sum over all series then still fits 64 bits."""

Labels = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Series:
    """One histogram on a scraped page."""

    buckets: dict[float, float] = field(default_factory=dict)
    """The number of requests up to each upper bound, cumulative."""
    total: float | None = None
    """The sum of all observations (``_sum``)."""
    created: float | None = None
    """When the histogram started from zero (OpenMetrics ``_created``)."""

    def usable(self) -> bool:
        """Whether it has the bucket +Inf and at least one finite bound."""
        finite = [bound for bound in self.buckets if math.isfinite(bound)]
        return math.inf in self.buckets and bool(finite)


@dataclass(frozen=True, slots=True)
class Exposition:
    """The series of one metric on a scraped page."""

    series: dict[Labels, Series]
    malformed: int
    """Lines and series of the metric that could not be used."""
    seen: int
    """All lines that start with the metric's name."""


class HistogramParser:
    """Finds the series that match a selector.

    Args:
        selector: The metric and conditions on its labels.
    """

    def __init__(self, selector: Selector) -> None:
        self._selector = selector
        name = re.escape(selector.name.encode())
        self._line = re.compile(
            rb"^" + name + rb"(_bucket|_sum|_count|_created)?(?=[{ \t])(.*)$", re.MULTILINE
        )

    def parse(self, body: bytes) -> Exposition:
        """Parse the histograms in ``body``; never raises, whatever it holds."""
        series: dict[Labels, Series] = {}
        malformed = seen = 0
        for match in self._line.finditer(body, 0, body.rfind(b"\n") + 1):  # no cut-off last line
            seen += 1
            if match[1] in {b"_bucket", b"_sum", b"_created"}:
                text = match[2].decode("utf-8", "replace")
                malformed += not self._take(match[1].decode(), text, series)
        unusable = [key for key, histogram in series.items() if not histogram.usable()]
        for key in unusable:
            del series[key]
        return Exposition(series=series, malformed=malformed + len(unusable), seen=seen)

    def _take(self, suffix: str, rest: str, series: dict[Labels, Series]) -> bool:
        """Add one line to its series; False if it is malformed."""
        read = _read_line(rest)
        if read is None:
            return False
        labels, value = read
        bound = labels.pop("le", None)
        if not self._selector.matches(labels):
            return True
        key = tuple(sorted(labels.items()))
        if key not in series and len(series) >= MAX_SERIES:
            return False
        one = series.setdefault(key, Series())
        if suffix == "_sum":
            one.total = value
        elif suffix == "_created":
            one.created = value
        else:
            return _take_bucket(one, bound, value)
        return True


def _take_bucket(series: Series, bound: str | None, value: float) -> bool:
    edge = None if bound is None else _VALUE.fullmatch(bound)
    if edge is None or not 0.0 <= value < MAX_REQUESTS:
        return False
    upper = float(edge[1])
    if math.isnan(upper) or upper in series.buckets:
        return False
    series.buckets[upper] = value
    return True


def _read_line(rest: str) -> tuple[dict[str, str], float] | None:
    """Read labels and value after a name; ``None`` if they are no sample."""
    labels: dict[str, str] = {}
    rest, position = rest.lstrip(), 0
    if rest.startswith("{"):
        position = 1
        while (end := _LABELS_END.match(rest, position)) is None:
            match = _LABEL.match(rest, position)
            if match is None or match[1] in labels:
                return None
            labels[match[1]] = _ESCAPE.sub(_unescaped, match[2])
            position = match.end()
        position = end.end()
    value = _VALUE.match(rest, position)
    return None if value is None else (labels, float(value[1]))


def _unescaped(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]


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
    return any(count < before.buckets[bound] for bound, count in after.buckets.items())


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


def _sum_change(series: Series, before: Series | None) -> float | None:
    """Return by how much the sum grew; ``None`` if that is not known."""
    if series.total is None or not math.isfinite(series.total):
        return None
    if before is None:
        return series.total
    if before.total is None or not math.isfinite(before.total):
        return None
    return series.total - before.total
