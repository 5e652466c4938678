"""Scraping an application that lives, restarts, or has several workers."""

from __future__ import annotations

import gzip
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle

import pytest
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.exposition import generate_latest
from prometheus_pages import BOUNDS, Endpoint, page, parse

from stallward.actuator.errors import SensorError
from stallward.actuator.latency.channel_source import ChannelSource
from stallward.actuator.latency.config import PrometheusLatency
from stallward.actuator.latency.feed import LatencyFeed
from stallward.actuator.latency.prometheus import scraper as module
from stallward.actuator.latency.prometheus.histogram import HistogramParser
from stallward.actuator.latency.prometheus.scraper import Scraper, note_bad_lines, why_nothing
from stallward.actuator.latency.prometheus.selector import parse_selector
from stallward.agent.sample import LatencySample


@contextmanager
def scraping(url: str, metric: str) -> Iterator[Callable[[], LatencySample]]:
    """A scraper and the loop's side of it; calling it scrapes once."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    life_read, life_write = os.pipe()
    scraper = Scraper(
        PrometheusLatency(url=url, metric=metric, period_s=0.05, timeout_s=0.2),
        unit_ms=1e3,
        feed=LatencyFeed(theirs),
    )
    source = ChannelSource(ours, name=url, silent_s=5.0, window_s=10.0)

    def once() -> LatencySample:
        scraper.step(0.0, life_read)
        return source.read()

    try:
        yield once
    finally:
        source.close()
        theirs.close()
        os.close(life_read)
        os.close(life_write)


def test_an_application_is_followed_over_its_restart(endpoint: Endpoint) -> None:
    def start() -> Histogram:
        registry = CollectorRegistry()
        endpoint.body = lambda: generate_latest(registry)
        return Histogram("app_seconds", "x", ["path"], registry=registry, buckets=BOUNDS)

    application = start()
    application.labels("/a").observe(0.3)
    with scraping(endpoint.url, 'app_seconds{path="/a"}') as once:
        with pytest.raises(SensorError, match="scraped once"):
            once()
        for _ in range(10):
            application.labels("/a").observe(0.02)
        application.labels("/b").observe(0.4)
        sample = once()
        assert sample.completed == 10
        assert sample.mean_ms == pytest.approx(20.0)
        assert sample.p95_ms is not None
        assert 10.0 < sample.p95_ms <= 50.0, "between the bounds of its bucket"
        application = start()
        for _ in range(5):
            application.labels("/a").observe(0.07)
        assert once().completed == 15
        endpoint.body = lambda: b"app_seconds 1\n"
        with pytest.raises(SensorError, match="has no histogram"):
            once()
        endpoint.body = lambda: b"other 1\n"
        with pytest.raises(SensorError, match="has no metric app_seconds"):
            once()
        endpoint.pause_s = 10.0
        with pytest.raises(SensorError, match=r"does not answer within 0\.2 s"):
            once()


def worker(*counts: int) -> str:
    return page(*counts, started=None)


def test_several_workers_behind_one_endpoint_are_named(endpoint: Endpoint) -> None:
    pages = cycle([worker(50_000, 52_000, 52_010), worker(48_000, 49_990, 50_001)])
    endpoint.body = lambda: next(pages).encode()
    with scraping(endpoint.url, "t_seconds") as once:
        why = []
        for _ in range(8):
            with pytest.raises(SensorError) as raised:
                once()
            why.append(str(raised.value))
    assert "scraped once" in why[0]
    assert all("fell" in text for text in why[1:5])
    assert all("each scrape reaches another process" in text for text in why[5:])
    assert "multiprocess mode" in why[-1]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "has no exposition, but an empty page"),
        (
            gzip.compress(b"x 1\n", mtime=0),
            r"no exposition, but compressed data\. Turn compression off",
        ),
        (b"<html><title>Log in</title>", r"no exposition, but an HTML page\. It may be a login"),
        (b'{"status":"UP"}', r"no exposition, but JSON\. Correct \[latency\] url"),
        (b"\x1b\n\x05d_sum\x12\x04help", r"no exposition, but protobuf\. Let it answer in"),
        (page(1, 2).encode("utf-16"), r"no exposition, but UTF-16 text\. Let it answer in UTF-8"),
        (b"other 1\n", "has no metric t_seconds"),
        (b't_seconds_bucket{le="+Inf"} 2\nt_seconds_sum 1\nt_seconds_count 2\n',
         r"native histogram, of which text shows only the bucket \+Inf\. Give .* classic buckets"),
        (b't_seconds{quantile="0.9"} 1\nt_seconds_sum 1\nt_seconds_count 2\n',
         r"has no histogram .*\. Make it a histogram"),
        (b't_seconds_bucket{le="x",user="ann"} 2\n',
         r'has no usable histogram t_seconds \(1 bad lines, the first is .*user="\.\.\."'),
    ],
)  # fmt: skip
def test_a_page_without_the_histogram_says_what_it_is(
    endpoint: Endpoint, body: bytes, why: str
) -> None:
    endpoint.body = lambda: body
    with scraping(endpoint.url, "t_seconds") as once, pytest.raises(SensorError, match=why):
        once()


def test_a_page_that_takes_too_long_to_read_is_given_up(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint.body = lambda: page(1, 2).encode()
    monkeypatch.setattr(module, "PARSE_S", -1.0)
    with scraping(endpoint.url, "t_seconds") as once, pytest.raises(SensorError, match="to read"):
        once()


def test_quoted_names_and_ranges_reach_the_loop(endpoint: Endpoint) -> None:
    served = iter([(3, 4), (3, 9)])

    def body() -> bytes:
        fast, slow = next(served)
        return (
            "process_start_time_seconds 1.7e9\n"
            f'{{"d.x_bucket","http.route"="/a","vmrange"="1.000e-02...2.000e-02"}} {fast}\n'
            f'{{"d.x_bucket","http.route"="/a","vmrange"="2.000e-02...3.000e-02"}} {slow}\n'
        ).encode()

    endpoint.body = body
    with scraping(endpoint.url, '{"d.x","http.route"="/a"}') as once:
        with pytest.raises(SensorError, match="scraped once"):
            once()
        sample = once()
    assert sample.completed == 5
    assert sample.mean_ms == pytest.approx(25.0)
    assert sample.p95_ms is not None
    assert 20.0 < sample.p95_ms <= 30.0


def test_labels_that_match_nothing_are_named() -> None:
    parsed = parse(page(1, 2, labels='a="b"'), 't_seconds{a="c"}')
    assert "that matches" in why_nothing('t_seconds{a="c"}', parsed).cause


def test_bad_lines_are_counted_and_the_first_one_is_shown_without_its_values() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        feed = LatencyFeed(theirs)
        page = b"""app_seconds_bucket{user="eve",le="0.1"} x1
app_seconds_bucket{user="eve",le="0.2"} x2
"""
        exposition = HistogramParser(parse_selector("app_seconds")).parse(page)
        note_bad_lines(feed, exposition)
        counts = feed.counts()
    assert counts.malformed == 2
    assert "app_seconds_bucket" in counts.first_malformed
    assert "eve" not in counts.first_malformed
