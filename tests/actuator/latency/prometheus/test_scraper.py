"""Latencies from a Prometheus histogram: the format, the increase, and real endpoints."""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.parser import text_string_to_metric_families
from prometheus_pages import BOUNDS, Endpoint, page, parse

from stallward.actuator.errors import SensorError
from stallward.actuator.latency.feed import LatencyFeed
from stallward.actuator.latency.prometheus.histogram import (
    HistogramIncrease,
    HistogramParser,
    Increase,
)
from stallward.actuator.latency.prometheus.scraper import Scraper
from stallward.actuator.latency.prometheus.selector import parse_selector
from stallward.actuator.latency.source import ChannelSource
from stallward.agent.sample import LatencySample


@pytest.mark.parametrize("generate", [generate_latest, generate_openmetrics])
def test_pages_of_the_official_library_are_read(
    generate: Callable[[CollectorRegistry], bytes],
) -> None:
    registry = CollectorRegistry()
    histogram = Histogram("t_seconds", 'a "help"', ["path"], registry=registry, buckets=BOUNDS)
    odd = 'a"b\\c\nd}e,f='
    for value in (0.001, 0.02, 0.03, 0.2, 7.0):
        histogram.labels(odd).observe(value)
    parsed = parse(generate(registry))
    assert (parsed.malformed, len(parsed.series)) == (0, 1)
    ((labels, series),) = parsed.series.items()
    assert labels == (("path", odd),)
    assert series.buckets == {0.005: 1, 0.01: 1, 0.05: 3, 0.1: 3, 0.5: 4, math.inf: 5}
    assert series.total == pytest.approx(7.251)
    assert series.created is not None


def test_the_official_parser_agrees_on_every_bucket() -> None:
    registry = CollectorRegistry()
    histogram = Histogram("t_seconds", "x", ["a", "b"], registry=registry)
    for i in range(200):
        histogram.labels(str(i % 3), str(i % 5)).observe(i / 100.0)
    body = generate_latest(registry)
    theirs = {
        (tuple(sorted((k, v) for k, v in s.labels.items() if k != "le")), float(s.labels["le"])): (
            s.value
        )
        for family in text_string_to_metric_families(body.decode())
        for s in family.samples
        if s.name == "t_seconds_bucket"
    }
    ours = {
        (labels, bound): count
        for labels, series in parse(body).series.items()
        for bound, count in series.buckets.items()
    }
    assert ours == theirs


@pytest.mark.parametrize(
    ("line", "malformed"),
    [
        ('t_seconds_bucket{le="0.1"} 1 1700000000000', 0),
        ('t_seconds_bucket{le="0.1"} 1 # {trace_id="}"} 0.05 1.5', 0),
        (' t_seconds_bucket{le="0.1"} 1', 0),
        ('t_seconds_bucket {le="0.1",} 1.0e0', 0),
        ('t_seconds_bucket{ le = "1e-1" , } 1', 0),
        ("t_secondsish 3", 0),
        ("# TYPE t_seconds_bucket 1", 0),
        ('t_seconds_bucket{le="0.1"} NaN', 1),
        ('t_seconds_bucket{le="0.1"} -1', 1),
        ('t_seconds_bucket{le="0.1"} 1x', 1),
        ('t_seconds_bucket{le="0.1"} 1_0', 1),
        ('t_seconds_bucket{le="nan"} 1', 1),
        ('t_seconds_bucket{le="x"} 1', 1),
        ("t_seconds_bucket 1", 1),
        ('t_seconds_bucket{le="0.1" 1', 1),
        ('t_seconds_bucket{le="0.1",le="0.2"} 1', 1),
        ('t_seconds_bucket{le=0.1} 1', 1),
        ("t_seconds_sum x", 1),
    ],
)  # fmt: skip
def test_odd_lines_are_read_or_counted(line: str, malformed: int) -> None:
    good = 't_seconds_bucket{le="0.5"} 2\nt_seconds_bucket{le="+Inf"} 3\n'
    parsed = parse(f"{line}\n{good}")
    assert parsed.malformed == malformed
    assert parsed.series[()].buckets.items() >= {0.5: 2.0, math.inf: 3.0}.items()


def test_a_page_without_a_histogram_has_no_series() -> None:
    for body in ("", "other 1\n", 't_seconds{quantile="0.9"} 1\n', 't_seconds_bucket{le="1"} 1\n'):
        assert parse(body).series == {}
    assert parse('t_seconds_bucket{le="+Inf"} 1\n').series == {}
    torn = page(1, 2, 3)
    assert parse(torn[: torn.index("+Inf")]).series == {}


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_hostile_pages_never_raise(noise: bytes) -> None:
    parsed = parse(b"t_seconds_bucket" + noise + b"\n" + page(1, 2).encode() + noise)
    increase = HistogramIncrease(1e3)
    increase.take(parsed, 0.0)
    increase.take(parsed, 0.1)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["a", "b"]), st.floats(0.0, 1.0)), max_size=40),
    st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.floats(0.0, 1.0)), max_size=40),
    st.booleans(),
)
def test_the_increase_holds_exactly_the_values_observed_in_between(
    before: list[tuple[str, float]], after: list[tuple[str, float]], restarted: bool
) -> None:
    """Label values that appear and a restart of the application do not change that."""

    def observed(*parts: list[tuple[str, float]]) -> bytes:
        registry = CollectorRegistry()
        histogram = Histogram("t_seconds", "x", ["a"], registry=registry, buckets=BOUNDS)
        histogram.labels("idle")
        for label, value in (pair for part in parts for pair in part):
            histogram.labels(label).observe(value)
        page = generate_latest(registry)
        if restarted:
            return page
        return b"".join(line for line in page.splitlines(True) if b"_created" not in line)

    increase = HistogramIncrease(1e3)
    assert increase.take(parse(observed(before)), 0.0) is None
    delta = increase.take(parse(observed(after) if restarted else observed(before, after)), 0.5)
    assert delta is not None
    total_ms = 1e3 * sum(value for _, value in after)
    assert sum(span[2] for span in delta.spans) == len(after)
    if total_ms > 0.001:
        assert delta.total_ms == pytest.approx(total_ms, abs=1e-3)
    for low, high, _ in delta.spans:
        assert 0.0 <= low <= high <= 500.0


def test_a_restart_that_shows_counts_everything_since() -> None:
    increase = HistogramIncrease(1e3)
    increase.take(parse(page(50, 80, 100, total=1.0)), 0.0)
    delta = increase.take(parse(page(1, 3, 4, total=0.06)), 0.5)
    assert delta == Increase(((0.0, 10.0, 1.0), (10.0, 20.0, 2.0), (20.0, 20.0, 1.0)), 60.0)


def test_selected_series_are_summed_and_others_left_out() -> None:
    selector = parse_selector('t_seconds{code=~"2..",zone!="x"}')
    parser, increase = HistogramParser(selector), HistogramIncrease(1e3)

    def body(*counts: int) -> bytes:
        labels = ('code="200"', 'code="204"', 'code="500"', 'code="200",zone="x"')
        pages = (page(n, n + 1, labels=text) for n, text in zip(counts, labels, strict=True))
        return "".join(pages).encode()

    assert increase.take(parser.parse(body(1, 1, 1, 1)), 0.0) is None
    delta = increase.take(parser.parse(body(4, 3, 99, 99)), 0.5)
    assert delta is not None
    assert delta.spans == ((0.0, 10.0, 5.0),)
    assert delta.total_ms == 25.0, "without a sum that grows, the middle of the bucket"


def test_a_series_that_was_gone_is_not_counted_again() -> None:
    increase = HistogramIncrease(1e3)
    both = page(10, 10, labels='a="1"') + page(10, 10, labels='a="2"')
    increase.take(parse(both), 0.0)
    increase.take(parse(page(10, 10, labels='a="1"')), 0.3)
    delta = increase.take(parse(both), 0.6)
    assert delta == Increase((), 0.0)


def test_an_increase_over_too_long_a_time_is_none() -> None:
    increase = HistogramIncrease(1e3, recent_s=5.0)
    increase.take(parse(page(1, 1)), 0.0)
    assert increase.take(parse(page(9, 9)), 6.0) is None
    delta = increase.take(parse(page(10, 10)), 6.3)
    assert delta is not None
    assert delta.spans == ((0.0, 10.0, 1.0),)


@contextmanager
def scraping(url: str, metric: str) -> Iterator[Callable[[], LatencySample]]:
    """A scraper and the loop's side of it; calling it scrapes once."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    life_read, life_write = os.pipe()
    scraper = Scraper(
        url=url,
        metric=metric,
        unit_ms=1e3,
        period_s=0.05,
        timeout_s=0.2,
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
