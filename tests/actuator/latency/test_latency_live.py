"""Latency sources of a real daemon: the loop keeps ticking whatever happens outside."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest
from free_port import free_port
from prometheus_client import CollectorRegistry, Histogram, MetricsHandler

from stallward.actuator.client import ActuatorClient, LatencyInfo
from stallward.actuator.client.daemon_process import Daemon
from stallward.actuator.client.latency_reports import Reported, ReportSummary
from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.tables import (
    ControlConfig,
    JournalConfig,
    NodeConfig,
    ProtectedConfig,
    RestartConfig,
    ServiceConfig,
    SlotConfig,
)
from stallward.actuator.errors import RequestError
from stallward.actuator.kernel.hierarchies import detect
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.latency.config import (
    GrpcLatency,
    LatencyConfig,
    PrometheusLatency,
    StatsdLatency,
)
from stallward.actuator.record.tick_record import Mode
from stallward.agent.desired import DesiredState, SlotDesire
from stallward.agent.sample import LatencySample

pytestmark = pytest.mark.live


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., DaemonConfig]]:
    """Configures a daemon for groups of its own, which are empty but for a sleeper."""
    hierarchy = detect(Paths())
    zone = hierarchy.group(f"stallward-latency-{os.getpid()}")
    groups = (zone, zone.child("app"), zone.child("bg"))
    sleeper = subprocess.Popen(["sleep", "300"])
    try:
        for group in groups:
            group.create()
        groups[1].add_pid(sleeper.pid)

        def config(latency: LatencyConfig, metrics: str | None = None) -> DaemonConfig:
            return DaemonConfig(
                node=NodeConfig(zone=zone.name),
                protected=ProtectedConfig(group=groups[1].name),
                background=(SlotConfig(name="bg", group=groups[2].name),),
                service=ServiceConfig(socket=tmp_path / "s.sock", metrics=metrics),
                journal=JournalConfig(path=tmp_path / "journal"),
                control=ControlConfig(controller="none"),
                restart=RestartConfig(delay_s=0.02, max_delay_s=0.05, max_per_minute=3),
                latency=latency,
            )

        yield config
    finally:
        sleeper.kill()
        sleeper.wait()
        for group in reversed(groups):
            group.remove()


PATIENCE_S = 20.0
"""After which a wait is given up: far beyond what it takes, however busy the machine is."""


def wait_for(condition: Callable[[], object], timeout_s: float = PATIENCE_S) -> bool:
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        if condition():
            return True
        time.sleep(0.02)
    return False


def latest(client: ActuatorClient) -> LatencySample | None:
    tick = client.status().last_tick
    return None if tick is None else tick.sample.latency


def source_of(client: ActuatorClient) -> LatencyInfo:
    latency = client.status().latency
    assert latency is not None
    return latency


def completed(client: ActuatorClient) -> int:
    sample = latest(client)
    return 0 if sample is None else sample.completed


def hear(client: ActuatorClient, heard: threading.Event) -> None:
    """Set ``heard`` at the first tick with a latency."""
    for watched in client.watch():
        if watched.record.sample.latency is not None:
            heard.set()
            return


def another_collector(daemon: Daemon, pid: int) -> bool:
    return daemon.pids.collector not in (None, pid)


class Application(ThreadingHTTPServer):
    """A server whose histogram is scraped; it can hang, die and start again."""

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        self.registry = CollectorRegistry()
        self.histogram = Histogram("app_seconds", "x", registry=self.registry)
        self.hang = threading.Event()
        outer = self

        class Handler(MetricsHandler):
            def do_GET(self) -> None:  # noqa: N802
                if outer.hang.is_set():
                    time.sleep(10.0)
                super().do_GET()

        super().__init__(("127.0.0.1", port), Handler.factory(self.registry))
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing: the scraper has closed the connection."""

    def stop(self) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


def test_a_scraped_application_restarts_hangs_and_comes_back(
    start: Callable[..., DaemonConfig],
) -> None:
    application = Application()
    port = application.server_address[1]
    url = f"http://127.0.0.1:{port}/metrics"
    config = start(PrometheusLatency(url=url, metric="app_seconds", period_s=0.1, timeout_s=0.3))
    try:
        with Daemon(config) as daemon, daemon.client() as client:
            assert wait_for(lambda: latest(client) is not None)
            application.histogram.observe(0.03)
            assert wait_for(lambda: completed(client) == 1)
            sample = latest(client)
            assert sample is not None
            assert sample.mean_ms == pytest.approx(30.0)
            application.hang.set()
            assert wait_for(lambda: "does not answer" in source_of(client).fault)
            assert wait_for(lambda: any(m.startswith("latency") for m in client.status().missing))
            status = client.status()
            assert any(f"{url}: does not answer within 0.3 s" in why for why in status.missing)
            assert status.last_tick is not None
            assert status.last_tick.sample.latency is None, "absent, not zero"
            ticks = status.ticks
            assert wait_for(lambda: client.status().ticks >= ticks + 3), "the loop ticks on"
            application.stop()
            assert wait_for(lambda: "refuses the connection" in source_of(client).fault)
            application = Application(port)
            assert wait_for(lambda: latest(client) is not None), "back when it is back"
            for _ in range(5):
                application.histogram.observe(0.002)
            assert wait_for(lambda: completed(client) == 5)
            assert wait_for(lambda: "latency" not in client.status().missing)
    finally:
        application.stop()


def test_statsd_arrives_floods_and_outlives_its_collector(
    start: Callable[..., DaemonConfig],
) -> None:
    address = ("127.0.0.1", free_port())
    config = start(StatsdLatency(metric="app.ms", listen=f"127.0.0.1:{address[1]}"))
    with (
        Daemon(config) as daemon,
        daemon.client() as client,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as application,
    ):
        assert wait_for(lambda: latest(client) is not None)
        application.sendto(b"app.ms:7.5|ms\nrubbish", address)
        assert wait_for(lambda: completed(client) == 1)
        assert wait_for(lambda: source_of(client).counts.malformed == 1)
        before = client.status().ticks

        def ticked_in_a_flood() -> bool:
            for _ in range(20_000):
                application.sendto(b"app.ms:7.5|ms", address)
            return client.status().ticks > before

        assert wait_for(ticked_in_a_flood)
        assert wait_for(lambda: completed(client) > 100)
        for _ in range(6):  # more often than the daemon's own processes may die
            pid = daemon.pids.collector
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            assert wait_for(partial(another_collector, daemon, pid))
        assert wait_for(lambda: latest(client) is not None)
        pid = daemon.pids.collector
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        assert wait_for(lambda: "silent" in source_of(client).fault)
        assert wait_for(lambda: latest(client) is None)
        os.kill(pid, signal.SIGCONT)
        assert wait_for(lambda: latest(client) is not None)


def test_clients_report_over_grpc(start: Callable[..., DaemonConfig]) -> None:
    with Daemon(start(GrpcLatency())) as daemon, daemon.client() as client:
        assert wait_for(lambda: "nobody reports" in source_of(client).fault)
        assert daemon.pids.collector is None
        proceed = threading.Event()

        def batches() -> Iterator[list[Reported]]:
            yield [Reported(latency_ms=float(i)) for i in range(100)]
            yield [Reported(latency_ms=1.0, failed=True), Reported(latency_ms=float("nan"))]
            yield [Reported(latency_ms=9.0, ended_s=time.monotonic() - 30.0)]
            proceed.wait(30.0)

        summaries: list[ReportSummary] = []
        thread = threading.Thread(target=lambda: summaries.append(client.report(batches())))
        thread.start()
        with daemon.client() as other:
            assert wait_for(lambda: completed(other) == 100)
            sample = latest(other)
            assert sample is not None
            assert (sample.p95_ms, sample.max_ms) == (94.0, 99.0)
            assert wait_for(lambda: source_of(other).counts.failed == 1)
            assert wait_for(lambda: completed(other) == 0), "an open stream without requests"
            assert latest(other) is not None
            proceed.set()
            thread.join(PATIENCE_S)
            assert summaries == [ReportSummary(accepted=100, failed=1, malformed=1, late=1)]
            assert wait_for(lambda: "nobody reports" in source_of(other).fault)
            loop = daemon.pids.loop
            assert loop is not None
            os.kill(loop, signal.SIGKILL)
            assert wait_for(lambda: client.wait_ready().loop_restarts == 1)
            # Watched from before: the sample is gone again a moment after its client.
            heard = threading.Event()
            watching = threading.Thread(target=hear, args=(other, heard), daemon=True)
            watching.start()
            time.sleep(3.0)  # calm again: the loop looks twice a second only
            command = [str(Path(sys.executable).with_name("stallward")), "ctl", "report"]
            command += ["--socket", str(daemon.config.service.socket), "--latency", "1"]
            done = subprocess.run(
                command,
                input="a 12.5\nb 13\nc x\n",
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            said = done.stdout.splitlines()
            assert said[0] == "2 reported, 0 failed, 0 too late, 1 not understood"
            assert said[1].startswith("the first that was not understood: ")
            assert heard.wait(PATIENCE_S)


def test_reports_are_refused_where_latencies_come_from_elsewhere(
    start: Callable[..., DaemonConfig], tmp_path: Path
) -> None:
    listen = str(tmp_path / "statsd.sock")
    config = start(StatsdLatency(metric="x", listen=listen))
    with Daemon(config) as daemon, daemon.client() as client:
        with pytest.raises(RequestError, match=r"come from 'statsd' here\. Set source = 'grpc'"):
            client.report(iter([[Reported(latency_ms=1.0)]]))
        refused = dict(client.status().refused)
        assert refused["FAILED_PRECONDITION"] == 1


def test_metrics_are_served_while_clients_go_wrong(
    start: Callable[..., DaemonConfig], tmp_path: Path
) -> None:
    port = free_port()
    config = start(GrpcLatency(), metrics=f"127.0.0.1:{port}")

    def read() -> dict[str, float]:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        lines = (line for line in text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, _, value in (li.rpartition(" ") for li in lines)}

    with Daemon(config) as daemon, daemon.client() as client:
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(40)]
        with pytest.raises(RequestError):
            client.set_mode(Mode.ACTIVE)
        for connection in idle:
            connection.close()
        assert wait_for(lambda: read()["stallward_ticks_total"] > 5)
        values = read()
        assert values['stallward_refused_calls_total{code="FAILED_PRECONDITION"}'] == 1
        up = 'stallward_latency_source_up{source="grpc"}'
        assert wait_for(lambda: read().get(up) == 0)
        client.report([[Reported(latency_ms=4.0)] * 20])
        assert wait_for(lambda: read()["stallward_requests_total"] == 20)
        state = DesiredState(slots=(SlotDesire(paused=True),))
        client.apply(state, lease_s=5.0, holder="test")
        paused = 'stallward_slot_paused_seconds_total{slot="bg"}'

        def paused_while_latencies_come() -> bool:  # without them the guard takes over
            client.report([[Reported(latency_ms=4.0)]])
            return read()[paused] > 0.2

        assert wait_for(paused_while_latencies_come)
        assert read()['stallward_slot_pauses_total{slot="bg"}'] == 1
        client.release(holder="test")
