"""Each request is in exactly one sample, whatever the ticks, the source and the application do."""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stallward.actuator.errors import SensorError
from stallward.actuator.latency.channel_source import ChannelSource
from stallward.actuator.latency.config import StatsdLatency
from stallward.actuator.latency.counts import Tally
from stallward.actuator.latency.feed import Completed, LatencyFeed, pack
from stallward.actuator.latency.line_format import LineFormat
from stallward.actuator.latency.line_source import LineSource
from stallward.actuator.latency.prometheus.histogram import HistogramParser
from stallward.actuator.latency.prometheus.increase import HistogramIncrease, Increase
from stallward.actuator.latency.prometheus.selector import parse_selector
from stallward.actuator.latency.statsd import StatsdFilter, StatsdLines
from stallward.actuator.latency.window import LatencyWindow, NewRequests
from stallward.agent.latency_histogram import LatencyHistogram, merged
from stallward.agent.sample import LatencySample

MS = LineFormat(latency="0", latency_unit_s=1e-3)
PROMISED = 0.01 * (1.0 + 1e-9)
"""Rounding may put a latency on the bound of a bucket into the next one."""


def new(sample: LatencySample) -> LatencyHistogram:
    assert sample.new_requests is not None
    return sample.new_requests


def whole(samples: Iterable[LatencySample]) -> LatencyHistogram:
    return merged(map(new, samples))


def exact_ms(latencies_ms: list[float], percent: float) -> float:
    """The latency of the nearest rank."""
    rank = max(math.ceil(percent * len(latencies_ms) / 100.0), 1)
    return sorted(latencies_ms)[rank - 1]


def gathered(latencies_ms: list[float]) -> LatencyHistogram:
    requests = NewRequests()
    requests.add_points(latencies_ms)
    return requests.take()


@given(
    st.lists(st.floats(0.001, 1e9), min_size=1, max_size=200),
    st.sampled_from([0.0, 50.0, 95.0, 99.0, 99.9, 100.0]),
)
def test_a_percentile_is_within_one_per_cent(latencies_ms: list[float], percent: float) -> None:
    histogram = gathered(latencies_ms)
    assert histogram.requests == len(latencies_ms)
    found_ms = histogram.percentile_ms(percent)
    assert found_ms == pytest.approx(exact_ms(latencies_ms, percent), rel=PROMISED)


@given(st.lists(st.floats(0.0, 1e9), min_size=65, max_size=200), st.integers(1, 64))
def test_many_at_once_and_few_at_a_time_are_the_same_requests(
    latencies_ms: list[float], few: int
) -> None:
    requests = NewRequests()
    for start in range(0, len(latencies_ms), few):
        requests.add_points(latencies_ms[start : start + few])
    taken, at_once = requests.take(), gathered(latencies_ms)
    assert taken.requests == at_once.requests == len(latencies_ms)
    for percent in (1.0, 50.0, 95.0, 100.0):
        exact = max(exact_ms(latencies_ms, percent), 1e-3)
        assert taken.percentile_ms(percent) == pytest.approx(exact, rel=PROMISED)
        assert at_once.percentile_ms(percent) == pytest.approx(exact, rel=PROMISED)
    assert requests.take().requests == 0


def test_points_and_spans_are_taken_together() -> None:
    requests = NewRequests()
    requests.add_points([5.0, 5.0])
    requests.add_spans(np.array([(5.0, 5.0, 1.5)]))
    assert requests.take() == LatencyHistogram.of({gathered([5.0]).buckets[0]: 3})
    requests.add_spans(np.array([(5.0, 5.0, 0.5)]))
    assert requests.take() == gathered([5.0]), "half a request was left over"


def test_what_is_shorter_than_a_microsecond_counts_as_one() -> None:
    assert gathered([0.0, 1e-9, 1e-3]) == LatencyHistogram(buckets=(0,), counts=(3,))


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=60),
    st.sampled_from([0.1, 0.5]),
    st.integers(0, 40),
)
def test_windows_overlap_and_new_requests_do_not(
    arrivals: list[int], tick_s: float, late_at: int
) -> None:
    """At 10 and at 2 ticks a second, and with a tick that is late by 3 s."""
    window, samples, sent, now_s = LatencyWindow(), [], [], 0.0
    for number, count in enumerate(arrivals):
        now_s += tick_s + 3.0 * (number == late_at)
        latencies_ms = [1.0 + number + k / 10.0 for k in range(count)]
        window.add_points(now_s, latencies_ms)
        sent += latencies_ms
        samples.append(window.sample(now_s))
    together = whole(samples)
    assert together == gathered(sent) if sent else together.requests == 0
    assert together.requests == samples[-1].completed_total


def test_lines_count_once_across_rotation_and_a_restart_of_the_application(
    tmp_path: Path,
) -> None:
    path = tmp_path / "lines"
    path.write_text("")
    source, samples = LineSource(path, MS), []
    for number in range(12):
        if number == 4:
            path.write_text("")  # truncated in place
        if number == 8:
            path.rename(tmp_path / "lines.1")
        with path.open("a") as file:
            file.write(f"{number + 1}\n" * (number + 1))
        samples.append(source.read(0.5 * number))
    samples += [source.read(6.0 + 0.1 * tick) for tick in range(5)]
    source.close()
    sent = [float(number + 1) for number in range(12) for _ in range(number + 1)]
    assert whole(samples) == gathered(sent)


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        yield ours, theirs


def listening(end: socket.socket) -> ChannelSource:
    return ChannelSource(end, name="test", silent_s=1.5, window_s=1.0)


def test_requests_that_are_fed_count_once_also_after_a_fault(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    """What clients report by gRPC and what StatsD brings come in this way."""
    source, feed = listening(ends[0]), LatencyFeed(ends[1])
    samples, sent = [], []
    for number in range(6):
        for latency_ms in (1.0 + number, 100.0 + number):
            feed.add(latency_ms)
            sent.append(latency_ms)
        feed.flush()
        samples.append(source.read())
    feed.add(7.0)
    sent.append(7.0)
    feed.flush()
    with pytest.raises(SensorError, match="silent"):
        source.read(time.monotonic() + 60.0)  # it was read then, and is in no sample
    feed.send_spans((), 0.0)
    samples.append(source.read())
    assert whole(samples) == gathered(sent)


def test_requests_that_waited_until_the_loop_was_back_count_in_no_window_but_as_new(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    spans = np.array([(900.0, 900.0, 2.0)]).tobytes()
    now_s = time.monotonic()
    ends[1].send(pack(Completed(sent_s=now_s - 5.0, spans=spans, total_ms=1800.0)))
    ends[1].send(pack(Completed(sent_s=now_s)))
    sample = listening(ends[0]).read(now_s)
    assert sample.completed == 0
    assert new(sample) == gathered([900.0, 900.0])


def test_sampled_statsd_timings_count_as_whole_requests_in_the_end() -> None:
    wanted = StatsdFilter.of(StatsdLatency(metric="t"))
    window, samples = LatencyWindow(), []
    for tick in range(90):
        taken: list[tuple[float, float, float]] = []

        def add(
            latency_ms: float, weight: float, into: list[tuple[float, float, float]] = taken
        ) -> bool:
            into.append((latency_ms, latency_ms, weight))
            return True

        StatsdLines(wanted, Tally(), add).take(b"t:12|ms|@0.3")
        window.add_spans(float(tick), np.array(taken), 12.0)
        samples.append(window.sample(float(tick)))
    together = whole(samples)
    assert together.requests == pytest.approx(300, abs=1), "each stands for 3 1/3 requests"
    assert together.buckets == gathered([12.0]).buckets


def page(counts: list[int], started_s: float) -> bytes:
    bounds, lines, reached = (0.1, 0.25, 1.0), [], 0
    for bound, count in zip(bounds, counts, strict=True):
        reached += count
        lines.append(f't_seconds_bucket{{le="{bound}"}} {reached}')
    lines += [f't_seconds_bucket{{le="+Inf"}} {reached}', f"t_seconds_count {reached}"]
    lines += [f"t_seconds_sum {reached * 0.2}", f"process_start_time_seconds {started_s}"]
    return "\n".join(["# TYPE t_seconds histogram", *lines, ""]).encode()


def test_a_prometheus_histogram_counts_once_across_a_restart() -> None:
    """A percentile is then known as well as the buckets say."""
    parser = HistogramParser(parse_selector("t_seconds"))
    increase, window = HistogramIncrease(1e3), LatencyWindow()
    samples, served, counts, started_s = [], [0, 0, 0], [5, 5, 5], 1000.0
    for scrape in range(200):
        now_s = 0.25 * scrape
        if scrape == 100:
            counts, started_s = [0, 0, 0], 2000.0 + now_s - 0.1
        if scrape:
            counts = [counts[0] + 6, counts[1] + 3, counts[2] + 1]
            served = [served[0] + 6, served[1] + 3, served[2] + 1]
        taken = increase.take(parser.parse(page(counts, started_s)), now_s, 2000.0 + now_s)
        if isinstance(taken, Increase):
            window.add_spans(now_s, np.array(taken.spans), taken.total_ms)
        samples.append(window.sample(now_s))
    together = whole(samples)
    assert together.requests == sum(served)
    # 60 % are up to 100 ms, 30 % up to 250 ms and 10 % up to 1 s, evenly spread within.
    assert together.percentile_ms(50.0) == pytest.approx(50.0 / 60.0 * 100.0, rel=0.05)
    assert together.percentile_ms(75.0) == pytest.approx(100.0 + 150.0 * 0.5, rel=0.05)
    assert together.percentile_ms(95.0) == pytest.approx(250.0 + 750.0 * 0.5, rel=0.05)


@pytest.mark.parametrize("count", [2.0**60, 1e308])
def test_a_claim_of_any_number_of_requests_does_no_harm(count: float) -> None:
    window = LatencyWindow()
    for second in range(5):
        window.add_spans(float(second), np.array([[1.0, 2.0, count]]), count)
    assert 0 < new(window.sample(5.0)).requests < 2**63
    window.add_points(6.0, [3.0])
    assert new(window.sample(6.0)) == gathered([3.0])
