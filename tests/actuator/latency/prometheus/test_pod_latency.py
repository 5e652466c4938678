"""The latencies of a pod that is rolled: those of no other pod count, and none without a pod."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_api import FakeApi
from pods import node_without_groups, uid_of, written
from prometheus_pages import Endpoint, page

from stallward.actuator.errors import SensorError
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.latency.channel_source import ChannelSource
from stallward.actuator.latency.config import CollectorOptions, PrometheusLatency
from stallward.actuator.latency.feed import LatencyFeed
from stallward.actuator.latency.prometheus import pod_address as module
from stallward.actuator.latency.prometheus.pod_address import PodAddress, PodAddresses
from stallward.actuator.latency.prometheus.scraper import Scraper
from stallward.actuator.runtime.process_start import command_line
from stallward.actuator.runtime.waiting_messages import pack
from stallward.actuator.targets.config import KubernetesConfig, PodConfig, PodsOptions
from stallward.agent.sample import LatencySample

PATIENCE_S = 20.0
OLD, NEW = "127.0.0.1", "127.0.0.2"


@pytest.fixture
def pods() -> Iterator[tuple[Endpoint, Endpoint]]:
    """Two pods that serve the same port at addresses of their own; each counts for itself."""
    old = Endpoint(OLD)
    new = Endpoint(NEW, old.port)
    yield old, new
    for one in (old, new):
        one.stop()


def serves(endpoint: Endpoint, requests: int) -> None:
    """So many requests so far, of 10 to 20 ms each."""
    endpoint.body = lambda: page(0, requests, requests, total=0.015 * requests).encode()


class Followed:
    """A scraper of a pod's port, and both its neighbours."""

    def __init__(self, port: int) -> None:
        self._said, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours, feed = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._life, self._end = os.pipe()
        self.scraper = Scraper(
            PrometheusLatency(port=port, metric="t_seconds", period_s=0.05, timeout_s=1.0),
            unit_ms=1e3,
            feed=LatencyFeed(feed),
            addresses=PodAddresses(theirs),
        )
        self._feed = feed
        self._source = ChannelSource(ours, name="pod", silent_s=5.0, window_s=10.0)

    def say(self, uid: str, address: str) -> None:
        self._said.send(pack(PodAddress(sent_s=time.monotonic(), uid=uid, address=address)))

    def send(self, message: bytes) -> None:
        self._said.send(message)

    def once(self) -> LatencySample:
        self.scraper.step(0.0, self._life)
        return self._source.read()

    def close(self) -> None:
        self.scraper.close()
        self._source.close()
        self._feed.close()
        self._said.close()
        os.close(self._life)
        os.close(self._end)


@pytest.fixture
def followed(pods: tuple[Endpoint, Endpoint]) -> Iterator[Followed]:
    made = Followed(pods[0].port)
    yield made
    made.close()


def test_a_rolled_pod_is_followed_and_its_totals_are_no_requests_of_now(
    pods: tuple[Endpoint, Endpoint], followed: Followed
) -> None:
    old, new = pods
    serves(old, 5)
    serves(new, 10_000)
    with pytest.raises(SensorError, match="the process that follows the pods is silent"):
        followed.once()
    followed.say("a", OLD)
    with pytest.raises(SensorError, match="scraped once"):
        followed.once()
    serves(old, 12)
    assert followed.once().completed == 7
    asked = len(old.requests)
    followed.say("", "")
    with pytest.raises(SensorError, match="is no pod now"):
        followed.once()
    followed.say("b", "")
    with pytest.raises(SensorError, match="has no address yet"):
        followed.once()
    assert len(old.requests) == asked, "the old address is asked no more"
    followed.say("b", NEW)
    with pytest.raises(SensorError, match="scraped once"):
        followed.once()
    serves(new, 10_003)
    assert followed.once().completed == 7 + 3
    assert len(old.requests) == asked


def test_another_pod_with_the_same_address_is_another_pod(
    pods: tuple[Endpoint, Endpoint], followed: Followed
) -> None:
    old, _ = pods
    serves(old, 5)
    followed.say("a", OLD)
    with pytest.raises(SensorError, match="scraped once"):
        followed.once()
    serves(old, 9_000)
    followed.say("b", OLD)
    with pytest.raises(SensorError, match="scraped once"):
        followed.once()


def test_an_answer_that_comes_when_the_pod_is_gone_counts_for_nothing(
    pods: tuple[Endpoint, Endpoint], followed: Followed
) -> None:
    old, _ = pods
    serves(old, 5)
    followed.say("a", OLD)
    with pytest.raises(SensorError, match="scraped once"):
        followed.once()

    def rolled_meanwhile() -> bytes:
        followed.say("b", NEW)
        return page(0, 9_000, 9_000, total=1.0).encode()

    old.body = rolled_meanwhile
    with pytest.raises(SensorError, match="is another pod now"):
        followed.once()


def test_an_address_that_was_said_too_long_ago_is_not_used(
    pods: tuple[Endpoint, Endpoint], followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    serves(pods[0], 5)
    followed.say("a", OLD)
    followed.send(b"{")
    with pytest.raises(SensorError, match="scraped once"):
        followed.once()
    monkeypatch.setattr(module, "SILENT_S", 0.0)
    with pytest.raises(SensorError, match="silent"):
        followed.once()


# ------------------------------------------------------------------ the processes


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return node_without_groups(tmp_path)


def make_pod(api: FakeApi, paths: Paths, number: int, address: str) -> Path:
    pod = written("app", number=number)
    pod["status"]["podIP"] = address
    api.put(pod)
    group = paths.cgroup / f"kubepods/besteffort/pod{uid_of(number)}"
    group.mkdir(parents=True)
    (group / "cgroup.procs").write_text("")
    return group


def test_the_processes_of_the_daemon_follow_a_pod_of_the_api(
    pods: tuple[Endpoint, Endpoint], paths: Paths
) -> None:
    """The pod watcher, an API server by HTTP, the collector, and two pods in turn."""
    old, new = pods
    count = 0

    def busy() -> bytes:
        nonlocal count
        count += 1
        return page(0, count, count, total=0.015 * count).encode()

    old.body = new.body = busy
    api = FakeApi().start()
    addresses = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    reports = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    latencies = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    life_read, life_write = os.pipe()
    watcher = PodsOptions(
        fd=reports[1].fileno(),
        life_fd=life_read,
        kubernetes=KubernetesConfig(server=api.url, node="node-7"),
        paths=paths,
        protected=(PodConfig(selector="app=app"),),
        slots=(),
        names=("app",),
        address_fds=(addresses[0].fileno(),),
    )
    source = PrometheusLatency(port=old.port, metric="t_seconds", period_s=0.05)
    collector = CollectorOptions(
        fd=latencies[1].fileno(),
        life_fd=life_read,
        source=source,
        address_fd=addresses[1].fileno(),
    )
    modules = (
        ("stallward.kubernetes.watcher", watcher, addresses[0]),
        ("stallward.actuator.latency.collector", collector, addresses[1]),
    )
    processes = [
        subprocess.Popen(
            command_line(name, given),
            pass_fds=(given.fd, given.life_fd, way.fileno()),
            stderr=subprocess.DEVNULL,
        )
        for name, given, way in modules
    ]
    loop = ChannelSource(latencies[0], name="pod", silent_s=5.0, window_s=1.0)

    def wait_for(fault: str) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            with contextlib.suppress(SensorError):
                loop.read()
            if loop.fault.startswith(fault) if fault else not loop.fault:
                return
            assert time.monotonic() < deadline_s, loop.fault
            time.sleep(0.02)

    try:
        wait_for("is no pod now")
        group = make_pod(api, paths, 1, OLD)
        wait_for("")
        assert not new.requests
        (group / "cgroup.procs").unlink()
        group.rmdir()  # the kubelet has removed it; the API does not know it yet
        wait_for("is no pod now")
        asked = len(old.requests)
        make_pod(api, paths, 2, NEW)
        wait_for("")
        assert len(old.requests) == asked
        assert new.requests
    finally:
        os.close(life_write)
        for process in processes:
            process.wait(PATIENCE_S)
        os.close(life_read)
        loop.close()
        for end in (*addresses, *reports, latencies[1]):
            end.close()
        api.stop()
