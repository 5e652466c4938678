"""Receiving StatsD datagrams: real sockets, floods, and who may send."""

from __future__ import annotations

import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from free_port import free_port

from stallward.actuator.errors import SensorError
from stallward.actuator.latency import statsd as module
from stallward.actuator.latency.channel_source import ChannelSource
from stallward.actuator.latency.feed import LatencyFeed
from stallward.actuator.latency.statsd import StatsdFilter, StatsdLines, StatsdReceiver
from stallward.actuator.runtime.addresses import Address


@contextmanager
def receiving(
    address: Address, **options: Any
) -> Iterator[tuple[Callable[[], None], ChannelSource]]:
    """A receiver and the loop's side of it; stepping the receiver takes in what has arrived."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    life_read, life_write = os.pipe()
    receiver = StatsdReceiver(
        address=address,
        wanted=StatsdFilter(metric=b"app.latency"),
        **options,
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


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_udp_datagrams_arrive(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    address = Address(host=host, port=free_port())
    with (
        receiving(address) as (step, source),
        socket.socket(family, socket.SOCK_DGRAM) as application,
    ):
        step()
        assert source.read().completed == 0, "nothing came: none completed, which is known"
        application.sendto(b"app.latency:4|ms|@0.5\nnonsense", address.bindable)
        step()
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


def test_what_others_put_in_its_place_is_moved_aside(tmp_path: Path) -> None:
    folder, precious = tmp_path / "of another user", tmp_path / "precious"
    precious.write_text("x")
    folder.mkdir()
    folder.chmod(0o777)
    (folder / "s").symlink_to(precious)
    address = Address(path=str(folder / "s"))
    with (
        receiving(address) as (step, source),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as application,
    ):
        step()
        application.sendto(b"app.latency:4|ms", address.path)
        step()
        assert source.read().completed == 1
    assert precious.read_text() == "x"


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


@pytest.mark.slow
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
        assert 50 <= source.read().completed <= 50 * 50
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
        wanted=StatsdFilter(metric=b"x"),
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


def test_the_mode_of_a_socket_is_never_changed_by_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("whoever can write the folder may have put another file there")

    for name in ("chmod", "lchmod", "chown"):
        monkeypatch.setattr(os, name, refuse, raising=False)
    os.umask(before := os.umask(0o022))
    path = tmp_path / "statsd.sock"
    with receiving(Address(path=str(path))) as (step, _):
        step()
        assert stat.S_IMODE(path.stat().st_mode) == 0o666
    assert os.umask(before) == before


def test_only_the_own_socket_is_removed_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "statsd.sock"
    with receiving(Address(path=str(path))) as (step, _):
        step()
        path.unlink()
        path.write_text("of somebody else")
    assert path.read_text() == "of somebody else"


def test_a_socket_whose_name_was_removed_is_made_again(tmp_path: Path) -> None:
    """As by a service that cleans up old files; senders would get an error for good."""
    address = Address(path=str(tmp_path / "statsd.sock"))
    with (
        receiving(address) as (step, source),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as application,
    ):
        step()
        Path(address.path).unlink()
        step()
        application.sendto(b"app.latency:4|ms", address.path)
        step()
        assert source.read().completed == 1


def test_a_folder_that_is_exchanged_loses_nothing(tmp_path: Path) -> None:
    folder, other = tmp_path / "run", tmp_path / "precious"
    folder.mkdir()
    other.mkdir()
    (other / "statsd.sock").write_text("precious")
    with receiving(Address(path=str(folder / "statsd.sock"))) as (step, _):
        step()
        folder.rename(tmp_path / "moved")
        folder.symlink_to(other)
    assert (other / "statsd.sock").read_text() == "precious"
    assert list((tmp_path / "moved").iterdir()) == []


@pytest.mark.parametrize("allowed", [True, False])
def test_only_datagrams_of_allowed_users_count(tmp_path: Path, allowed: bool) -> None:
    address = Address(path=str(tmp_path / "statsd.sock"))
    users = (str(os.getuid() + (not allowed)),)
    with (
        receiving(address, allowed_users=users) as (step, source),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as application,
    ):
        step()
        application.sendto(b"app.latency:4|ms", address.path)
        step()
        if not allowed:
            with pytest.raises(SensorError, match=r"users who may not send any"):
                source.read()
        assert source.read().completed == 1 if allowed else source.counts.refused == 1


def test_a_user_who_does_not_exist_is_named(tmp_path: Path) -> None:
    address = Address(path=str(tmp_path / "statsd.sock"))
    with receiving(address, allowed_users=("nobody-of-that-name",)) as (step, source):
        step()
        with pytest.raises(SensorError, match="no user 'nobody-of-that-name'"):
            source.read()


def test_files_that_a_sender_passes_are_not_taken(tmp_path: Path) -> None:
    address = Address(path=str(tmp_path / "statsd.sock"))
    passed = tmp_path / "passed"
    passed.touch()
    for options in ({}, {"allowed_users": (str(os.getuid()),)}):
        with (
            receiving(address, **options) as (step, source),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as application,
        ):
            step()
            application.connect(address.path)
            for _ in range(5):  # a step on a busy machine may have time for only one
                with passed.open() as file:
                    socket.send_fds(application, [b"app.latency:4|ms"], [file.fileno()] * 3)
                step()
            assert source.read().completed == 5
            open_files = [os.path.realpath(path) for path in Path("/proc/self/fd").iterdir()]
            assert str(passed) not in open_files


def test_a_datagram_that_is_too_long_is_malformed(tmp_path: Path) -> None:
    address = Address(path=str(tmp_path / "statsd.sock"))
    with (
        receiving(address) as (step, source),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as application,
    ):
        step()
        application.sendto(b"\n".join([b"app.latency:4|ms"] * 3000), address.path)
        step()
        application.sendto(b"app.latency:5|ms", address.path)
        step()
        assert source.read().completed == 1
        assert source.counts.first_malformed == "a datagram too long: app.latency:0|ms"


def test_a_step_looks_at_the_clock_while_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    address = Address(host="127.0.0.1", port=free_port())
    taken = []

    def slow(_lines: StatsdLines, datagram: bytes) -> None:
        taken.append(datagram)
        until_s = time.thread_time() + 0.02
        while time.thread_time() < until_s:
            pass

    monkeypatch.setattr(StatsdLines, "take", slow)
    with receiving(address) as (step, _):
        step()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as application:
            for _ in range(100):
                application.sendto(b"app.latency:4|ms", address.bindable)
        step()
        assert 1 <= len(taken) <= 2, "half of a step of 0.05 s is for reading"


def test_where_only_other_timings_come_their_names_are_told() -> None:
    address = Address(host="127.0.0.1", port=free_port())
    with (
        receiving(address) as (step, source),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as application,
    ):
        step()
        application.sendto(
            b"app.latencies:4|ms\napp.latencies:4|ms\nx:3|h\nn:3|c", address.bindable
        )
        step()
        with pytest.raises(SensorError, match=r"named app.latency, but these: app.latencies, x$"):
            source.read()
        assert (source.counts.ignored_names, source.counts.names) == (3, ("app.latencies", "x"))
        application.sendto(b"app.latency:4|ms", address.bindable)
        step()
        assert source.read().completed == 1
        application.sendto(b"x:3|h", address.bindable)
        step()
        assert source.read().completed == 1, "it may be idle"
