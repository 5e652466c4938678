"""Latencies on their way to the loop: gathered, sent, and summed up over the last second."""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallward.actuator.errors import FramesError, SensorError
from stallward.actuator.latency.channel_source import ChannelSource
from stallward.actuator.latency.counts import LatencyCounts
from stallward.actuator.latency.feed import (
    EXACT,
    MAX_MESSAGE_BYTES,
    Completed,
    Fault,
    LatencyFeed,
    pack,
    unpack,
)
from stallward.actuator.latency.window import MOST_REQUESTS, LatencyWindow


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    yield pair
    for end in pair:
        end.close()


def listening(end: socket.socket) -> ChannelSource:
    return ChannelSource(end, name="test", silent_s=1.5, window_s=1.0)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=80))
def test_a_quantile_of_points_is_the_nearest_rank(values: list[float]) -> None:
    window = LatencyWindow()
    window.add_points(0.0, values[::2])
    window.add_points(0.5, values[1::2])
    sample = window.sample(0.6)
    assert sample.p95_ms in values
    assert sum(v <= sample.p95_ms for v in values) >= 0.95 * len(values) - 1e-6
    assert sum(v < sample.p95_ms for v in values) < 0.95 * len(values) + 1e-6
    assert (sample.completed, sample.max_ms) == (len(values), max(values))
    assert sample.mean_ms == pytest.approx(sum(values) / len(values))


@pytest.mark.parametrize("count", [1, 19, 20, 21, 256, 257, 1000])
def test_few_and_many_points_are_summed_up_alike(count: int) -> None:
    window = LatencyWindow()
    values = [float((index * 7919) % count) for index in range(count)]
    window.add_points(0.0, values)
    sample = window.sample(0.5)
    rank = -(-95 * count // 100)
    assert sample.p95_ms == sorted(values)[rank - 1]
    assert (sample.completed, sample.max_ms) == (count, max(values))
    assert sample.mean_ms == pytest.approx(sum(values) / count)


def test_points_and_buckets_share_a_window() -> None:
    window = LatencyWindow()
    window.add_points(0.0, [1.0, 2.0])
    window.add_spans(0.1, np.array([[4.0, 8.0, 2.0]]), 12.0)
    sample = window.sample(0.5)
    assert (sample.completed, sample.mean_ms, sample.max_ms) == (4, 3.75, 8.0)
    assert sample.p95_ms is not None
    assert 4.0 < sample.p95_ms < 8.0


@given(
    st.lists(st.floats(0.0, 499.0), min_size=5, max_size=200),
    st.integers(1, 3),
)
def test_a_quantile_of_buckets_is_off_by_less_than_their_width(
    values: list[float], batches: int
) -> None:
    bounds = [0.0, 5.0, 20.0, 100.0, 250.0, 500.0]
    window = LatencyWindow()
    for part in range(batches):
        counts, _ = np.histogram(values[part::batches], bins=bounds)
        rows = [
            (low, high, count)
            for low, high, count in zip(bounds, bounds[1:], counts, strict=False)
            if count
        ]
        spans = np.array(rows, dtype=np.float64).reshape(-1, 3)
        window.add_spans(0.1 * part, spans, sum(values[part::batches]))
    sample = window.sample(0.5)
    exact = sorted(values)[int(np.ceil(0.95 * len(values) * (1 - 1e-9))) - 1]
    width = next(high - low for low, high in itertools.pairwise(bounds) if exact < high)
    assert sample.p95_ms is not None
    assert abs(sample.p95_ms - exact) <= width
    assert sample.max_ms is not None
    assert sample.max_ms >= max(values)
    assert sample.mean_ms == pytest.approx(sum(values) / len(values))


def test_weights_count_as_that_many_requests() -> None:
    window = LatencyWindow()
    spans = np.array([(1.0, 1.0, 90.0), (50.0, 50.0, 10.0)])
    window.add_spans(0.0, spans, 1.0 * 90 + 50.0 * 10)
    sample = window.sample(0.1)
    assert (sample.completed, sample.p95_ms, sample.mean_ms) == (100, 50.0, 5.9)


def test_requests_leave_the_window_after_a_second() -> None:
    window = LatencyWindow()
    assert window.sample(0.0).last_completion_age_s is None
    window.add_points(10.0, [3.0, 1.0])
    assert window.sample(10.9).completed == 2
    gone = window.sample(11.0)
    assert (gone.completed, gone.p95_ms, gone.completed_total) == (0, None, 2)
    assert gone.last_completion_age_s == pytest.approx(1.0)


@given(st.binary(max_size=200))
def test_hostile_messages_are_refused(message: bytes) -> None:
    try:
        frame = unpack(message)
    except FramesError:
        return
    assert unpack(pack(frame)) == frame


@given(st.binary(max_size=120))
def test_hostile_messages_leave_a_source_silent_or_sane(message: bytes) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    header = pack(Completed(sent_s=1.0))
    with ours, theirs:
        source = listening(ours)
        theirs.send(header[:10] + message)
        theirs.send(header + message)
        try:
            sample = source.read(1.0)
        except SensorError:
            return
        if sample.completed:
            assert sample.p95_ms is not None
            assert sample.max_ms is not None
            assert 0.0 <= sample.p95_ms <= sample.max_ms


def test_latencies_that_are_fed_arrive(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    source, feed = listening(ours), LatencyFeed(theirs)
    with pytest.raises(SensorError, match="has not reported yet"):
        source.read()
    assert feed.add(4.0)
    assert feed.add(8.0, weight=3.0)
    assert not feed.add(float("nan"))
    assert not feed.add(-1.0)
    assert not feed.add(1.0, weight=0.0)
    feed.malformed, feed.failed = 3, 1
    feed.flush()
    sample = source.read()
    assert (sample.completed, sample.p95_ms, sample.mean_ms) == (4, 8.0, 7.0)
    assert source.counts == LatencyCounts(accepted=4, malformed=3, failed=1)
    assert source.fault == ""


def test_an_absent_latency_has_its_reason_until_it_comes_back(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    source, feed = listening(ours), LatencyFeed(theirs)
    feed.fault("refuses the connection")
    with pytest.raises(SensorError, match="test: refuses the connection"):
        source.read()
    assert source.fault == "refuses the connection"
    feed.flush()
    assert source.read().completed == 0
    with pytest.raises(SensorError, match="has been silent for 2 s"):
        source.read(time.monotonic() + 2.0)
    theirs.close()
    with pytest.raises(SensorError, match="silent"):
        source.read(time.monotonic() + 2.0)


def test_latencies_that_waited_in_the_socket_keep_their_time(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    now_s = time.monotonic()
    spans = np.array([(900.0, 900.0, 1.0)]).tobytes()
    theirs.send(pack(Completed(sent_s=now_s - 5.0, spans=spans, total_ms=900.0)))
    theirs.send(pack(Completed(sent_s=now_s)))
    sample = listening(ours).read(now_s)
    assert (sample.completed, sample.completed_total) == (0, 1)
    assert sample.last_completion_age_s == pytest.approx(5.0)


def test_many_latencies_fit_into_a_frame_with_two_per_cent_of_error(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    source, feed = listening(ours), LatencyFeed(theirs)
    values = np.random.default_rng(1).lognormal(3.0, 1.0, 50_000)
    for value in values.tolist():
        feed.add(value)
    feed.flush()
    sample = source.read()
    assert sample.completed == len(values) > 50 * EXACT
    assert sample.p95_ms == pytest.approx(np.quantile(values, 0.95), rel=0.02)
    assert sample.mean_ms == pytest.approx(values.mean())
    assert sample.max_ms == pytest.approx(values.max())


def test_a_feed_never_waits_and_counts_what_is_lost(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    _, theirs = ends
    feed = LatencyFeed(theirs)
    for _ in range(2000):
        feed.add(1.0)
        feed.flush()
    assert 0 < feed.lost < 2000


def test_the_widest_frame_fits(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    feed = LatencyFeed(theirs)
    feed.first_malformed, feed.names = "x" * 5000, ("y" * 5000,)
    feed.send_spans(((float(i), i + 1.0, 1.0) for i in range(10_000)), 0.0)
    assert len(ours.recv(1 << 20)) == MAX_MESSAGE_BYTES
    assert isinstance(unpack(pack(Fault(sent_s=0.0, reason="x" * 5000))), Fault)


@pytest.mark.parametrize("count", [2.0**60, 1e308, float("inf")])
def test_a_count_of_requests_has_an_end(count: float) -> None:
    """It comes from outside; a page of metrics may claim any."""
    window = LatencyWindow()
    for second in range(40):
        spans = np.array([[1.0, 2.0, count], [2.0, 4.0, 1.0]])
        window.add_spans(second / 40, spans, count)
        sample = window.sample(second / 40)
        assert 0 < sample.completed < 2**64
        assert 0 < sample.completed_total <= MOST_REQUESTS
        assert sample.p95_ms is not None
        assert 1.0 <= sample.p95_ms <= 4.0
