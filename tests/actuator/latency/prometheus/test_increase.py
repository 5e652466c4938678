"""The increase from one scrape to the next."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.exposition import generate_latest
from prometheus_pages import BOUNDS, page, parse

from stallward.actuator.latency.prometheus.histogram import HistogramParser
from stallward.actuator.latency.prometheus.increase import HistogramIncrease, Increase
from stallward.actuator.latency.prometheus.selector import parse_selector


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


def test_ranges_grow_and_appear() -> None:
    def body(*counts: int) -> str:
        edges = ("0", "1.000e-02", "2.000e-02", "3.000e-02", "+Inf")
        return "".join(
            f't_seconds_bucket{{vmrange="{edges[i]}...{edges[i + 1]}"}} {count}\n'
            for i, count in enumerate(counts)
            if count
        )

    increase = HistogramIncrease(1e3)
    increase.take(parse(body(1, 5, 0, 0)), 0.0)
    delta = increase.take(parse(body(1, 9, 2, 1)), 0.25)
    assert delta is not None
    assert sorted(delta.spans) == [(10.0, 20.0, 4.0), (20.0, 30.0, 2.0), (30.0, 30.0, 1.0)]
