"""Latencies from StatsD datagrams: lines, real sockets, floods."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stallward.actuator.errors import SensorError
from stallward.actuator.latency.statsd import receiver as module
from stallward.actuator.latency.feed import LatencyFeed
from stallward.actuator.latency.source import ChannelSource
from stallward.actuator.latency.statsd.receiver import StatsdFilter, StatsdReceiver, take_datagram
from stallward.actuator.runtime.addresses import Address

WANTED = StatsdFilter(metric=b"app.latency", unit_ms=1e3)


def taken(datagram: bytes, wanted: StatsdFilter = WANTED) -> tuple[list[tuple[float, float]], int]:
    latencies: list[tuple[float, float]] = []

    def add(value: float, weight: float) -> bool:
        if value < 0.0:
            return False
        latencies.append((value, weight))
        return True

    malformed = take_datagram(datagram, wanted, add)
    return latencies, malformed


@pytest.mark.parametrize(
    ("datagram", "latencies", "malformed"),
    [
        (b"app.latency:12.5|ms", [(12.5, 1.0)], 0),
        (b"app.latency:12.5|ms\n", [(12.5, 1.0)], 0),
        (b"app.latency:1|ms\napp.latency:2|ms\r\n\n", [(1.0, 1.0), (2.0, 1.0)], 0),
        (b"app.latency:3|ms|@0.1", [(3.0, 10.0)], 0),
        (b"app.latency:3|ms|@0.5|#env:prod,x", [(3.0, 2.0)], 0),
        (b"app.latency:0.25|h", [(250.0, 1.0)], 0),
        (b"app.latency:0.25:0.5|d|#x|c:abc|T1700000000", [(250.0, 1.0), (500.0, 1.0)], 0),
        (b"app.latency:1e-3|d", [(1.0, 1.0)], 0),
        (b"app.latency:3|c", [], 0),
        (b"app.latency:3|g\nother:3|ms\nother:x|ms", [], 0),
        (b"_e{5,4}:title|text\n_sc|name|0", [], 0),
        (b"app.latency:3", [], 1),
        (b"app.latency|ms", [], 1),
        (b":3|ms", [], 1),
        (b"app.latency:|ms", [], 1),
        (b"app.latency:-3|ms", [], 1),
        (b"app.latency:nan|ms\napp.latency:inf|ms\napp.latency:1_0|ms", [], 3),
        (b"app.latency:3|ms|@0", [], 1),
        (b"app.latency:3|ms|@2", [], 1),
        (b"app.latency:3|ms|@x", [], 1),
        (b"\x00\xff\xfe", [], 1),
        (b"app.latency:1:x:2|ms", [(1.0, 1.0), (2.0, 1.0)], 1),
        (b"", [], 0),
    ],
)
def test_lines(datagram: bytes, latencies: list[tuple[float, float]], malformed: int) -> None:
    assert taken(datagram) == (latencies, malformed)


def test_tags_must_all_be_there() -> None:
    wanted = StatsdFilter(metric=b"a", tags=frozenset({b"env:prod", b"x:1"}))
    lines = b"a:1|ms|#x:1,env:prod,y\na:2|ms|#env:prod\na:3|ms\na:4|ms|#env:prod,x:11"
    assert taken(lines, wanted) == ([(1.0, 1.0)], 0)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_hostile_datagrams_never_raise(noise: bytes) -> None:
    taken(b"app.latency:" + noise)
    taken(noise)


@contextmanager
def receiving(
    address: Address,
) -> Iterator[tuple[Callable[[], None], ChannelSource]]:
    """A receiver and the loop's side of it; stepping the receiver takes in what has arrived."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    life_read, life_write = os.pipe()
    receiver = StatsdReceiver(
        address=address,
        metric="app.latency",
        tags=(),
        unit_ms=1.0,
        feed=LatencyFeed(theirs),
        flush_s=0.05,
        retry_s=0.01,
    )
    source = ChannelSource(ours, name="statsd", silent_s=5.0, window_s=60.0)

    def step() -> None:
        receiver.step(time.monotonic() + receiver.period_s, life_read)

    try:
        yield step, source
    finally:
        receiver.close()
        source.close()
        theirs.close()
        os.close(life_read)
        os.close(life_write)


def free_port(family: socket.AddressFamily = socket.AF_INET, host: str = "127.0.0.1") -> int:
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_udp_datagrams_arrive(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    address = Address(host=host, port=free_port(family, host))
    with (
        receiving(address) as (step, source),
        socket.socket(family, socket.SOCK_DGRAM) as application,
    ):
        step()
        assert source.read().completed == 0, "nothing came: none completed, which is known"
        application.sendto(b"app.latency:4|ms|@0.5\nnonsense", address.bindable)
        application.sendto(b"app.latency:10|ms", address.bindable)
        step()
        sample = source.read()
        assert (sample.completed, sample.max_ms, sample.mean_ms) == (3, 10.0, 6.0)
        assert source.counts.malformed == 1


def test_a_unix_socket_takes_the_place_of_an_abandoned_one(tmp_path: Path) -> None:
    address = Address(path=str(tmp_path / "statsd.sock"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as abandoned:
        abandoned.bind(address.path)
    with (
        receiving(address) as (step, source),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as application,
    ):
        step()
        application.sendto(b"app.latency:4|ms", address.path)
        step()
        assert source.read().completed == 1
        assert Path(address.path).stat().st_mode & 0o777 == 0o666
        with receiving(address) as (other_step, other):
            other_step()
            with pytest.raises(SensorError, match=r"cannot listen \(Address already in use\)"):
                other.read()
    assert not Path(address.path).exists()


def test_a_file_that_is_no_socket_stays(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("x")
    with receiving(Address(path=str(path))) as (step, source):
        step()
        with pytest.raises(SensorError, match="cannot listen"):
            source.read()
    assert path.read_text() == "x"


def test_a_taken_port_is_tried_again() -> None:
    address = Address(host="127.0.0.1", port=free_port())
    taker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    taker.bind(address.bindable)
    with receiving(address) as (step, source):
        step()
        with pytest.raises(SensorError, match=r"cannot listen \(Address already in use\)"):
            source.read()
        taker.close()
        step()
        assert source.read().completed == 0


def test_a_flood_is_bounded_per_step_and_what_is_dropped_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "STEP_DATAGRAMS", 50)
    address = Address(host="127.0.0.1", port=free_port())
    datagram = b"\n".join([b"app.latency:4|ms"] * 50)
    with receiving(address) as (step, source):
        step()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as application:
            for _ in range(3000):
                application.sendto(datagram, address.bindable)
        step()
        assert source.read().completed == 50 * 50
        for _ in range(3000 // 50):
            step()
            source.read()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as application:
            application.sendto(datagram, address.bindable)
        step()  # the kernel says with the next datagram how many it dropped
        assert source.read().completed < 3000 * 50
        assert source.counts.lost > 0


def test_the_end_of_the_daemon_ends_a_step() -> None:
    life_read, life_write = os.pipe()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    receiver = StatsdReceiver(
        address=Address(host="127.0.0.1", port=free_port()),
        metric="x",
        tags=(),
        unit_ms=1.0,
        feed=LatencyFeed(theirs),
        flush_s=60.0,
        retry_s=60.0,
    )
    thread = threading.Thread(target=receiver.step, args=(time.monotonic() + 60.0, life_read))
    thread.start()
    os.close(life_write)
    thread.join(10.0)
    assert not thread.is_alive()
    receiver.close()
    os.close(life_read)
    ours.close()
    theirs.close()
