"""Scraping an application's histogram periodically, and feeding its increase to the loop."""

from __future__ import annotations

import select
import time
from typing import Final

from stallward.actuator.latency.config import PrometheusLatency
from stallward.actuator.latency.feed import LatencyFeed
from stallward.actuator.latency.prometheus.histogram import Exposition, HistogramParser, PageKind
from stallward.actuator.latency.prometheus.http_get import ScrapeError, scrape
from stallward.actuator.latency.prometheus.increase import HistogramIncrease, Increase, Nothing
from stallward.actuator.latency.prometheus.pod_address import PodAddresses
from stallward.actuator.latency.prometheus.selector import parse_selector

PARSE_S: Final = 1.0
"""How long reading one page may take; one of 1 MB takes some milliseconds."""
_PAGE_STEPS: Final = {
    PageKind.COMPRESSED: "Turn compression off for this page, or let it be labelled.",
    PageKind.HTML: "It may be a login, an error or another page: correct [latency] url.",
    PageKind.PROTOBUF: "Let it answer in the text format.",
    PageKind.UTF16: "Let it answer in UTF-8.",
}
_NATIVE_STEP: Final = (
    "Give the histogram classic buckets too: Buckets in Go, no nativeOnly() in Java."
)
_SUMMARY_STEP: Final = (
    "Make it a histogram; with Micrometer, set percentiles-histogram for it to true."
)


class Scraper:
    """Scrapes one histogram of one endpoint.

    Args:
        source: The endpoint and the metric.
        unit_ms: Milliseconds per unit of the histogram's bounds.
        feed: Takes the increase.
        addresses: Says where the application's pod is, if the endpoint is a pod.
    """

    def __init__(
        self,
        source: PrometheusLatency,
        *,
        unit_ms: float,
        feed: LatencyFeed,
        addresses: PodAddresses | None = None,
    ) -> None:
        self.period_s = source.period_s
        self._source, self._addresses = source, addresses
        self._unit_ms = unit_ms
        self._parser = HistogramParser(parse_selector(source.metric))
        self._pod = ""
        self._increase = self._new_increase()
        self._feed = feed

    def _new_increase(self) -> HistogramIncrease:
        return HistogramIncrease(self._unit_ms, recent_s=max(5.0, 3.0 * self.period_s))

    def step(self, until_s: float, life_fd: int) -> None:
        """Scrape once and send the increase, then rest at least half as long as that took."""
        began_s = time.monotonic()
        try:
            url = self._where()
            page = scrape(url, self._source.timeout_s)
            if self._addresses is not None and self._where() != url:
                raise ScrapeError("is another pod now")
            exposition = self._parser.parse(page, time.monotonic() + PARSE_S)
            note_bad_lines(self._feed, exposition)
            increase = increase_of(self._source.metric, exposition, self._increase)
        except ScrapeError as error:
            self._feed.fault(error.reason)
        else:
            self._feed.send_spans(increase.spans, increase.total_ms)
        now_s = time.monotonic()
        select.select([life_fd], [], [], max(until_s - now_s, (now_s - began_s) / 2.0))

    def _where(self) -> str:
        """The endpoint now; what was counted of an earlier pod is forgotten.

        Raises:
            ScrapeError: If no pod is known.
        """
        if self._addresses is None:
            return self._source.url_at("")
        known = self._addresses.read()
        pod = "" if known is None or not known.address else f"{known.uid} {known.address}"
        if pod != self._pod:
            self._pod, self._increase = pod, self._new_increase()
        if known is None:
            raise ScrapeError("is not known: the process that follows the pods is silent")
        if not known.uid:
            raise ScrapeError("is no pod now")
        if not known.address:
            raise ScrapeError("has no address yet")
        return self._source.url_at(known.address)

    def close(self) -> None:
        """Close the socket; no connection is kept open between scrapes."""
        if self._addresses is not None:
            self._addresses.close()


def note_bad_lines(feed: LatencyFeed, exposition: Exposition) -> None:
    """Count the bad lines of a page, and keep what the first one looked like."""
    if exposition.malformed:
        feed.malformed += exposition.malformed - 1
        feed.note_malformed(exposition.first_bad.encode(), show=str)  # it is masked already


def increase_of(metric: str, exposition: Exposition, increase: HistogramIncrease) -> Increase:
    """Return what was added since the last page.

    Raises:
        ScrapeError: If the page has no series of ``metric``, or says nothing about now.
    """
    if not exposition.complete:
        raise ScrapeError(
            f"takes more than {PARSE_S:g} s to read ({exposition.seen} lines of {metric})",
            next_step="Select fewer series, or let it show fewer.",
        )
    added = increase.take(exposition, time.monotonic(), time.time())
    if not (exposition.series or added is Nothing.OTHER_PROCESS):
        raise why_nothing(metric, exposition)
    match added:
        case Nothing.FIRST:
            raise ScrapeError("was scraped once, which says nothing about now yet")
        case Nothing.FELL:
            raise ScrapeError(
                f"has totals of {metric} that fell, which says nothing about now yet"
            )
        case Nothing.OTHER_PROCESS:
            raise other_process()
        case Nothing.WATCHED:
            raise ScrapeError("is watched first: its page does not say when its process started")
        case Nothing.IMPOSSIBLE:
            raise ScrapeError(f"adds more requests to {metric} than any application serves")
        case Increase():
            return added


def other_process() -> ScrapeError:
    """Return what totals mean that fall again and again."""
    return ScrapeError(
        "shows totals that go up and down: each scrape reaches another process",
        next_step="Use the multiprocess mode of the client library, or scrape one worker.",
    )


def why_nothing(metric: str, exposition: Exposition) -> ScrapeError:
    """Return why a page has no series of ``metric``."""
    if exposition.seen == 0:
        kind = exposition.kind
        if kind is not None:
            step = _PAGE_STEPS.get(kind, "Correct [latency] url.")
            return ScrapeError(f"has no exposition, but {kind.value}", next_step=step)
        return ScrapeError(f"has no metric {metric}")
    if exposition.without_buckets:
        return ScrapeError(
            f"has {metric} as a native histogram, of which text shows only the bucket +Inf",
            next_step=_NATIVE_STEP,
        )
    if exposition.malformed:
        first = f"{exposition.malformed} bad lines, the first is {exposition.first_bad}"
        return ScrapeError(f"has no usable histogram {metric} ({first})")
    if exposition.buckets_seen:
        return ScrapeError(f"has no histogram (with _bucket series) that matches {metric}")
    return ScrapeError(
        f"has no histogram {metric} (with _bucket series), but a metric of that name",
        next_step=_SUMMARY_STEP,
    )
