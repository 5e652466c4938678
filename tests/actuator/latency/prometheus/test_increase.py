"""The increase from one scrape to the next: growth, restarts, several workers."""

from __future__ import annotations

import math
import random
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.exposition import generate_latest
from prometheus_pages import BOUNDS, STARTED_S, page, parse

from stallward.actuator.latency.channel_source import spans_of
from stallward.actuator.latency.feed import MAX_SPANS, Completed
from stallward.actuator.latency.prometheus.histogram import HistogramParser
from stallward.actuator.latency.prometheus.increase import (
    MOST_GAINED,
    HistogramIncrease,
    Increase,
    Nothing,
)
from stallward.actuator.latency.prometheus.selector import parse_selector

WALL_S = 1_760_000_000.0


class Scrapes:
    """Takes pages that are ``period_s`` apart."""

    def __init__(self, period_s: float = 0.25, selector: str = "t_seconds") -> None:
        self._increase = HistogramIncrease(1e3)
        self._parser = HistogramParser(parse_selector(selector))
        self._period_s = period_s
        self.time_s = 0.0

    def take(self, body: str) -> Increase | Nothing:
        self.time_s += self._period_s
        parsed = self._parser.parse(body.encode())
        return self._increase.take(parsed, self.time_s, WALL_S + self.time_s)


def begun_process(began_s: float, *counts: float, total: float = 0.0) -> str:
    return page(*counts, total=total, started=began_s)


def begun_series(began_s: float, *counts: float, total: float = 0.0) -> str:
    return page(*counts, total=total, started=None, created=began_s)


def requests(taken: Increase | Nothing) -> float:
    assert isinstance(taken, Increase)
    return sum(count for _, _, count in taken.spans)


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
        lines = (line for line in page.splitlines(True) if b"_created" not in line)
        return b"".join((b"process_start_time_seconds 1.7e9\n", *lines))

    increase = HistogramIncrease(1e3)
    assert increase.take(parse(observed(before)), 0.0, time.time()) is Nothing.FIRST
    later = parse(observed(after) if restarted else observed(before, after))
    delta = increase.take(later, 0.5, time.time())
    assert isinstance(delta, Increase)
    total_ms = 1e3 * sum(value for _, value in after)
    assert sum(span[2] for span in delta.spans) == len(after)
    if total_ms > 0.001:
        assert delta.total_ms == pytest.approx(total_ms, abs=1e-3)
    for low, high, _ in delta.spans:
        assert 0.0 <= low <= high <= 500.0


def test_a_restart_that_shows_counts_everything_since() -> None:
    for begun in (begun_process, begun_series):
        scrapes = Scrapes(0.5)
        scrapes.take(begun(WALL_S - 900.0, 50, 80, 100, total=1.0))
        delta = scrapes.take(begun(WALL_S + 0.7, 1, 3, 4, total=0.06))
        spans = ((0.0, 10.0, 1.0), (10.0, 20.0, 2.0), (20.0, 20.0, 1.0))
        assert delta == Increase(spans, 60.0)
        assert requests(scrapes.take(begun(WALL_S + 0.7, 1, 3, 9))) == 5.0


def test_selected_series_are_summed_and_others_left_out() -> None:
    selector = parse_selector('t_seconds{code=~"2..",zone!="x"}')
    parser, increase = HistogramParser(selector), HistogramIncrease(1e3)

    def body(*counts: int) -> bytes:
        labels = ('code="200"', 'code="204"', 'code="500"', 'code="200",zone="x"')
        pages = (page(n, n + 1, labels=text) for n, text in zip(counts, labels, strict=True))
        return "".join(pages).encode()

    assert increase.take(parser.parse(body(1, 1, 1, 1)), 0.0, 0.0) is Nothing.FIRST
    delta = increase.take(parser.parse(body(4, 3, 99, 99)), 0.5, 0.5)
    assert isinstance(delta, Increase)
    assert delta.spans == ((0.0, 10.0, 5.0),)
    assert delta.total_ms == 25.0, "without a sum that grows, the middle of the bucket"


def test_a_series_that_was_gone_is_not_counted_again() -> None:
    scrapes = Scrapes()
    both = page(10, 10, labels='a="1"') + page(10, 10, labels='a="2"')
    scrapes.take(both)
    scrapes.take(page(10, 10, labels='a="1"'))
    assert scrapes.take(both) == Increase((), 0.0)


def test_an_increase_over_too_long_a_time_is_none() -> None:
    scrapes = Scrapes()
    scrapes.take(page(1, 1))
    scrapes.time_s += 6.0
    assert scrapes.take(page(9, 9)) is Nothing.FIRST
    assert scrapes.take(page(10, 10)) == Increase(((0.0, 10.0, 1.0),), 5.0)


FIRST_WORKER = (50_000, 52_000, 52_010)
SECOND_WORKER = (48_000, 49_990, 50_001)


def worker(counts: tuple[int, int, int], more: int = 0) -> str:
    return page(*(count + more for count in counts), total=sum(counts), started=None)


def test_totals_that_fall_and_come_back_are_of_several_workers() -> None:
    scrapes = Scrapes()
    assert scrapes.take(worker(FIRST_WORKER)) is Nothing.FIRST
    told = []
    for i in range(1, 13):
        told.append(scrapes.take(worker(SECOND_WORKER, more=i)))
        told.append(scrapes.take(worker(FIRST_WORKER, more=i)))
    assert told[:4] == [Nothing.FELL] * 4
    assert told[4:] == [Nothing.OTHER_PROCESS] * 20


@pytest.mark.parametrize("workers", [2, 3, 8])
@pytest.mark.parametrize("begun", ["", "started", "created"])
def test_workers_in_any_order_bring_no_totals_of_their_lives(workers: int, begun: str) -> None:
    """What is told is a part of what one worker served in the meantime, never its life's work."""
    order = random.Random(workers)
    scrapes = Scrapes()
    served = [1000 * (1 + i) + 3000 * (i % 2) for i in range(workers)]
    told: list[Increase | Nothing] = []
    for scrape in range(400):
        which = scrape % workers if scrape < 4 * workers else order.randrange(workers)
        served = [count + order.randrange(20) for count in served]
        began = WALL_S - 1000.0 + which * 0.07
        body = page(
            served[which],
            served[which],
            started=began if begun == "started" else None,
            created=began if begun == "created" else None,
        )
        told.append(scrapes.take(body))
    counted = [requests(one) for one in told if isinstance(one, Increase)]
    assert told[-1] is Nothing.OTHER_PROCESS
    assert all(count < 20 for count in counted)


def test_a_worker_that_knows_more_labels_brings_no_totals_of_its_life() -> None:
    scrapes = Scrapes()
    scrapes.take(page(100, 100, labels='a="1"'))
    both = page(200, 200, labels='a="1"') + page(40_000, 40_000, labels='a="2"')
    assert requests(scrapes.take(both)) == 100.0


def test_a_new_series_starts_from_zero() -> None:
    scrapes = Scrapes()
    first = page(5, 5, labels='code="200"')
    scrapes.take(first)
    assert requests(scrapes.take(first + page(3, 3, labels='code="500"'))) == 3.0
    old = page(3, 3, labels='code="404"', created=WALL_S - 500.0)
    assert scrapes.take(first + old) == Increase((), 0.0)
    new = page(3, 3, labels='code="403"', created=WALL_S + scrapes.time_s)
    assert requests(scrapes.take(first + new)) == 3.0


def test_a_restart_that_does_not_show_is_believed_after_some_scrapes() -> None:
    scrapes = Scrapes()
    told = [scrapes.take(page(500 + i, 500 + i, started=None)) for i in range(13)]
    assert told[1:11] == [Nothing.WATCHED] * 10
    assert [requests(one) for one in told[11:]] == [1.0] * 2
    told = [scrapes.take(page(3 * i, 3 * i, started=None)) for i in range(14)]
    assert told[:11] == [Nothing.FELL] * 11
    assert [requests(one) for one in told[11:]] == [3.0] * 3
    grown = [scrapes.take(page(40 * i, 40 * i, started=None)) for i in range(2, 20)]
    assert [requests(one) for one in grown[1:]] == [40.0] * 17, "beyond where it had been"


def test_a_start_in_the_past_or_the_future_is_no_restart() -> None:
    for start in (WALL_S - 60.0, WALL_S + 3600.0, 0.0, -1.0, 1e308):
        for begun, grown in ((begun_process, Nothing.WATCHED), (begun_series, Nothing.FELL)):
            scrapes = Scrapes()
            scrapes.take(begun(WALL_S - 900.0, 500, 500))
            assert scrapes.take(begun(start, 400, 400)) is Nothing.FELL
            scrapes = Scrapes()
            scrapes.take(begun(WALL_S - 900.0, 500, 500))
            assert scrapes.take(begun(start, 600, 600)) is grown, "it may be another worker"


def six(*counts: int, started: float | None = STARTED_S) -> str:
    pages = [
        page(n, n, labels=f'p="{i}"', started=started if i == 0 else None)
        for i, n in enumerate(counts)
    ]
    return "".join(pages)


def test_a_series_that_expires_says_nothing_and_the_others_do() -> None:
    """As statsd_exporter's time to live: it is forgotten, and then counts from zero."""
    scrapes = Scrapes()
    told = [scrapes.take(six(*[1000 + 10 * i] * 5, 7 * (i % 20))) for i in range(100)]
    assert [requests(one) for one in told[1:20]] == [57.0] * 19
    assert requests(told[20]) == 50.0, "it fell"
    assert [requests(one) for one in told[21:40]] == [57.0] * 19


def test_a_fall_counts_in_requests_and_not_in_series() -> None:
    scrapes = Scrapes()
    scrapes.take(six(9000, 10, 10, 10, 10, 10))
    assert requests(scrapes.take(six(9010, 1, 1, 1, 1, 1))) == 10.0, (
        "five of six, with 50 requests"
    )
    assert scrapes.take(six(10, 11, 11, 11, 11, 11)) is Nothing.FELL, "one, with 9,010"


def test_without_a_start_time_only_a_series_that_began_anew_may_fall() -> None:
    for small, told in ((3, 10.0), (350, None)):
        scrapes = Scrapes()
        for i in range(12):
            scrapes.take(six(1000 + 10 * i, 400, started=None))
        last = scrapes.take(six(1120, small, started=None))
        assert last is Nothing.FELL if told is None else requests(last) == told, "another worker"


def test_a_start_that_moves_while_totals_grow_is_watched_and_then_ignored() -> None:
    """Some clients compute it from the clock and the time since the start, for each page anew."""
    scrapes = Scrapes()
    told = [
        scrapes.take(page(500 + 5 * i, 500 + 5 * i, started=WALL_S - 900.0 + 0.3 * i))
        for i in range(40)
    ]
    assert told[1:11] == [Nothing.WATCHED] * 10
    assert [requests(one) for one in told[11:]] == [5.0] * 29
    leap = page(90_000, 90_000, started=WALL_S - 700.0)
    assert scrapes.take(leap) is Nothing.FELL, "the work of a life"


def test_a_start_that_moves_once_ends_what_was_trusted() -> None:
    """It may be another worker that happens to have served a little more."""
    scrapes = Scrapes()
    for i in range(20):
        scrapes.take(page(500 + i, 500 + i, started=WALL_S - 900.0))
    other = [page(700 + i, 700 + i, started=WALL_S - 800.0) for i in range(12)]
    told = [scrapes.take(body) for body in other]
    assert told[:10] == [Nothing.WATCHED] * 10
    assert requests(told[11]) == 1.0


def test_a_new_start_beside_totals_that_grew_is_no_restart() -> None:
    """A gateway that began anew has its own start, and the totals of what is behind it."""
    scrapes = Scrapes()
    scrapes.take(page(50_000, 50_000, started=WALL_S - 900.0))
    told = [scrapes.take(page(50_000 + i, 50_000 + i, started=WALL_S + 0.4)) for i in range(1, 14)]
    assert told[:10] == [Nothing.WATCHED] * 10
    assert [requests(one) for one in told[10:]] == [1.0] * 3


def test_a_start_that_moves_by_a_second_is_the_same() -> None:
    """The kernel's time of the boot moves when the clock is adjusted."""
    scrapes = Scrapes()
    scrapes.take(page(500, 500, started=WALL_S - 900.0))
    assert requests(scrapes.take(page(505, 505, started=WALL_S - 899.0))) == 5.0
    assert requests(scrapes.take(page(510, 510, started=WALL_S - 900.0))) == 5.0


def test_a_series_that_is_made_anew_counts_from_zero() -> None:
    scrapes = Scrapes()
    other = page(7, 7, labels='a="2"', created=WALL_S - 900.0)
    scrapes.take(other + page(500, 500, labels='a="1"', created=WALL_S - 900.0))
    delta = scrapes.take(other + page(2, 2, labels='a="1"', created=WALL_S + 0.4))
    assert requests(delta) == 2.0


def buckets(**counts: int) -> str:
    """A histogram of the named bounds only, as ``le_0_5=3``."""
    bounds = (name.removeprefix("le_").replace("_", ".") for name in counts)
    names = ("+Inf" if bound == "inf" else bound for bound in bounds)
    pairs = zip(names, counts.values(), strict=True)
    lines = [f't_seconds_bucket{{le="{bound}"}} {count}' for bound, count in pairs]
    return "\n".join([*lines, f"process_start_time_seconds {STARTED_S}", ""])


def test_a_bucket_that_appears_was_empty() -> None:
    """Some clients show a bucket only from its first request on."""
    scrapes = Scrapes()
    scrapes.take(buckets(le_0_5=50_000, le_inf=50_000))
    delta = scrapes.take(buckets(le_0_25=1, le_0_5=50_001, le_inf=50_001))
    assert delta == Increase(((0.0, 250.0, 1.0),), 125.0)
    delta = scrapes.take(buckets(le_0_25=1, le_0_5=50_001, le_1=50_003, le_inf=50_003))
    assert delta == Increase(((500.0, 1000.0, 2.0),), 1500.0)


def test_a_bucket_that_appears_full_adds_no_more_requests_than_there_were() -> None:
    scrapes = Scrapes()
    scrapes.take(buckets(le_0_5=50_000, le_inf=50_000))
    assert requests(scrapes.take(buckets(le_0_25=30_000, le_0_5=50_003, le_inf=50_003))) == 3.0


def test_a_bucket_that_lags_behind_a_lower_one_brings_no_slow_request() -> None:
    """Requests complete while the page is written."""
    scrapes = Scrapes()
    scrapes.take(buckets(le_0_1=100, le_10=100, le_inf=99))
    delta = scrapes.take(buckets(le_0_1=110, le_10=110, le_inf=110))
    assert delta == Increase(((0.0, 100.0, 10.0),), 500.0)


def test_a_bound_that_goes_is_another_process() -> None:
    scrapes = Scrapes()
    scrapes.take(page(500, 501, 502))
    assert scrapes.take(page(500, 503)) is Nothing.FELL
    scrapes = Scrapes()
    scrapes.take(page(500, 600, 700))
    damaged = page(501, 601, 701).replace('le="0.02"} 601', 'le="0.02"} NaN')
    assert scrapes.take(damaged) is Nothing.FELL


def test_a_page_without_series_still_shows_the_process() -> None:
    scrapes = Scrapes()
    scrapes.take(page(500, 500, started=WALL_S - 900.0))
    empty = f"process_start_time_seconds {WALL_S + 0.3}\nother 1\n"
    assert scrapes.take(empty) == Increase((), 0.0)
    assert requests(scrapes.take(page(4, 4, started=WALL_S + 0.3))) == 4.0


def test_a_hostile_start_cannot_pass_64_bits() -> None:
    """A process that claims to have just started, with as many requests as a bucket may hold."""
    scrapes = Scrapes()
    scrapes.take(page(1, 1, created=WALL_S))
    for i in range(20):
        huge = page(2**47, 2**47, created=WALL_S + scrapes.time_s + 0.2)
        assert scrapes.take(huge) is Nothing.IMPOSSIBLE, i
    assert MOST_GAINED * 4 * 3600 * 24 * 365 * 30 < 2.0**64, "30 years of such scrapes"


def test_ranges_grow_and_appear() -> None:
    def body(*counts: int) -> str:
        edges = ("0", "1.000e-02", "2.000e-02", "3.000e-02", "+Inf")
        return "process_start_time_seconds 1.7e9\n" + "".join(
            f't_seconds_bucket{{vmrange="{edges[i]}...{edges[i + 1]}"}} {count}\n'
            for i, count in enumerate(counts)
            if count
        )

    scrapes = Scrapes()
    scrapes.take(body(1, 5, 0, 0))
    delta = scrapes.take(body(1, 9, 2, 1))
    assert isinstance(delta, Increase)
    assert sorted(delta.spans) == [(10.0, 20.0, 4.0), (20.0, 30.0, 2.0), (30.0, 30.0, 1.0)]
    assert scrapes.take(body(1, 8, 2, 1)) is Nothing.FELL
    assert scrapes.take(body(1, 8, 0, 1)) is Nothing.FELL, "a range that vanished"


@pytest.mark.parametrize("total", [-5.0, 1e300, math.inf, math.nan])
def test_a_sum_that_cannot_be_is_left_out(total: float) -> None:
    scrapes = Scrapes()
    scrapes.take(page(1, 1, total=0.0))
    delta = scrapes.take(page(3, 3, total=total))
    assert delta == Increase(((0.0, 10.0, 2.0),), 10.0)


def test_more_buckets_than_a_message_holds_are_merged() -> None:
    bounds = 3 * MAX_SPANS
    scrapes = Scrapes()

    def body(times: int) -> str:
        lines = ["process_start_time_seconds 1.7e9\n"]
        lines += [f't_seconds_bucket{{le="{i}"}} {i * times}\n' for i in range(1, bounds)]
        return "".join([*lines, f't_seconds_bucket{{le="+Inf"}} {bounds * times}\n'])

    scrapes.take(body(1))
    delta = scrapes.take(body(2))
    assert isinstance(delta, Increase)
    assert len(delta.spans) <= MAX_SPANS
    assert requests(delta) == bounds
    frame = Completed(sent_s=1.0, spans=np.array(delta.spans).tobytes(), total_ms=delta.total_ms)
    assert len(spans_of(frame)) == len(delta.spans)
