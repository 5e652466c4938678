"""Scraping an application's histogram periodically, and feeding its increase to the loop."""

from __future__ import annotations

import select
import time

from stallward.actuator.latency.feed import LatencyFeed
from stallward.actuator.latency.prometheus.histogram import (
    Exposition,
    HistogramIncrease,
    HistogramParser,
)
from stallward.actuator.latency.prometheus.http_get import ScrapeError, scrape
from stallward.actuator.latency.prometheus.selector import parse_selector


class Scraper:
    """Scrapes one histogram of one endpoint.

    Args:
        url: The endpoint.
        metric: The metric and matchers, as in PromQL.
        unit_ms: Milliseconds per unit of the histogram's bounds.
        period_s: The time between two scrapes.
        timeout_s: How long one scrape may take.
        feed: Takes the increase.
    """

    def __init__(
        self,
        *,
        url: str,
        metric: str,
        unit_ms: float,
        period_s: float,
        timeout_s: float,
        feed: LatencyFeed,
    ) -> None:
        self.period_s = period_s
        self._url, self._timeout_s = url, timeout_s
        self._metric = metric
        self._parser = HistogramParser(parse_selector(metric))
        self._increase = HistogramIncrease(unit_ms, recent_s=max(5.0, 3.0 * period_s))
        self._feed = feed

    def step(self, until_s: float, life_fd: int) -> None:
        """Scrape once and send the increase, then rest at least half as long as that took."""
        began_s = time.monotonic()
        try:
            exposition = self._parser.parse(scrape(self._url, self._timeout_s))
        except ScrapeError as error:
            self._feed.fault(error.reason)
        else:
            self._send(exposition)
        now_s = time.monotonic()
        select.select([life_fd], [], [], max(until_s - now_s, (now_s - began_s) / 2.0))

    def _send(self, exposition: Exposition) -> None:
        self._feed.malformed += exposition.malformed
        if not exposition.series:
            self._feed.fault(why_nothing(self._metric, exposition))
            return
        increase = self._increase.take(exposition, time.monotonic())
        if increase is None:
            self._feed.fault("was scraped once, which says nothing about now yet")
        else:
            self._feed.send_spans(increase.spans, increase.total_ms)

    def close(self) -> None:
        """Do nothing: no connection is kept open between scrapes."""


def why_nothing(metric: str, exposition: Exposition) -> str:
    """Say why a page has no series of ``metric``."""
    if exposition.seen == 0:
        return f"has no metric {metric}"
    if exposition.malformed:
        return f"has no usable histogram {metric} ({exposition.malformed} bad lines)"
    return f"has no histogram (with _bucket series) that matches {metric}"
