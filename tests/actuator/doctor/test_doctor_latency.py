"""The doctor tries the latency source that a configuration names, once."""

from __future__ import annotations

import gzip
import os
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from free_port import free_port

from stallward.actuator.config.daemon_config import DaemonConfig
from stallward.actuator.config.tables import (
    JournalConfig,
    NodeConfig,
    ProtectedConfig,
    ServiceConfig,
    SlotConfig,
)
from stallward.actuator.doctor import configuration, latency
from stallward.actuator.doctor.doctor import examine
from stallward.actuator.doctor.finding import Finding
from stallward.actuator.doctor.latency import try_latency
from stallward.actuator.kernel.process_spec import ProcessesConfig
from stallward.actuator.latency.config import (
    GrpcLatency,
    LatencyConfig,
    LinesLatency,
    PrometheusLatency,
    StatsdLatency,
    Unit,
)
from stallward.actuator.latency.statsd import DatagramSocket

PAGE = (
    b't_seconds_bucket{le="0.1"} 3\nt_seconds_bucket{le="1"} 4\n'
    b't_seconds_bucket{le="+Inf"} 4\nt_seconds_sum 1\nother 5\n'
)


WORKERS = cycle((PAGE, PAGE.replace(b" 3", b" 1").replace(b" 4", b" 2")))
PATHS: dict[str, Callable[[], bytes]] = {
    "/metrics": lambda: PAGE,
    "/workers": lambda: next(WORKERS),
    "/native": lambda: b't_seconds_bucket{le="+Inf"} 4\nt_seconds_sum 1\n',
    "/login": lambda: b"<html><title>Log in</title>",
}


class Pages(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        page = PATHS.get(self.path)
        self.send_response(307 if self.path == "/moved" else 200 if page else 404)
        self.send_header("Location", "/metrics")
        self.end_headers()
        self.wfile.write(page() if page else b"")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def endpoint() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Pages) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def tried(config: LatencyConfig) -> Finding:
    finding = try_latency(config)
    assert finding is not None
    assert finding.area == "signal"
    assert bool(finding.next_step) == (finding.state != "works"), "every problem has a next step"
    return finding


def test_a_histogram_that_is_there_works(endpoint: str) -> None:
    finding = tried(PrometheusLatency(url=f"{endpoint}/metrics", metric="t_seconds"))
    assert finding.state == "works"
    assert endpoint in finding.name


@pytest.mark.parametrize(
    ("path", "metric", "why", "step"),
    [
        ("/metrics", "t_second", "has no metric t_second", "metric; `curl http"),
        ("/metrics", "other", "no histogram", "Make it a histogram"),
        ("/metrics", 't_seconds{a="b"}', "no histogram", "metric; `curl http"),
        ("/elsewhere", "t_seconds", "status 404", "correct [latency] url"),
        ("/moved", "t_seconds", "/metrics", "/metrics"),
        ("/login", "t_seconds", "an HTML page", "correct [latency] url"),
        ("/native", "t_seconds", "native histogram", "classic buckets"),
        ("/workers", "t_seconds", "each scrape reaches another process", "multiprocess mode"),
    ],
)
def test_an_endpoint_without_the_histogram_names_its_lack(
    endpoint: str, path: str, metric: str, why: str, step: str
) -> None:
    finding = tried(PrometheusLatency(url=endpoint + path, metric=metric))
    assert finding.state == "degraded"
    assert why in finding.why
    assert step in finding.next_step


@pytest.mark.parametrize(
    ("slo_ms", "unit", "state"),
    [(60.0, "s", "works"), (1000.0, "s", "degraded"), (60.0, "ms", "degraded")],
)
def test_a_histogram_without_a_bound_above_the_target_shows_no_miss(
    endpoint: str, slo_ms: float, unit: Unit, state: str
) -> None:
    source = PrometheusLatency(url=f"{endpoint}/metrics", metric="t_seconds", unit=unit)
    found = try_latency(source, slo_ms=slo_ms)
    assert found is not None
    assert found.state == state
    if state == "degraded":
        highest = "1000 ms" if unit == "s" else "1 ms"
        assert f"highest bound is {highest}, so no miss of the target" in found.why
        assert "correct [latency] unit" in found.next_step


def test_an_endpoint_that_refuses_or_is_silent_is_named() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/metrics"
        assert "refuses" in tried(PrometheusLatency(url=url, metric="t")).why
        silent.listen()
        finding = tried(PrometheusLatency(url=url, metric="t", timeout_s=0.1))
    assert finding.why == "does not answer within 0.1 s"


def test_a_port_that_is_free_and_one_that_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "_LISTEN_S", 0.1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", 0))
        config = StatsdLatency(metric="t", listen=f"127.0.0.1:{other.getsockname()[1]}")
        finding = tried(config)
        assert finding.state == "degraded"
        assert "another program listens" in finding.why
        assert str(config.address.port) in finding.next_step
    assert tried(config).state == "works"
    assert tried(config).state == "works", "the port was released"
    foreign = StatsdLatency(metric="t", listen="192.0.2.1:8125", allow_remote=True)
    assert "cannot listen" in tried(foreign).why


def test_a_socket_path_is_checked_and_nothing_is_made(tmp_path: Path) -> None:
    path = tmp_path / "statsd.sock"
    assert tried(StatsdLatency(metric="t", listen=str(path))).state == "works"
    assert list(tmp_path.iterdir()) == []
    path.write_text("mine")
    assert "another file" in tried(StatsdLatency(metric="t", listen=str(path))).why
    assert path.read_text() == "mine"
    lost = StatsdLatency(metric="t", listen=str(tmp_path / "no" / "statsd.sock"))
    assert "cannot make" in tried(lost).why


def test_what_comes_to_a_port_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "_LISTEN_S", 0.1)
    address = ("127.0.0.1", free_port())
    config = StatsdLatency(metric="t", listen=f"127.0.0.1:{address[1]}")

    def tried_with(*datagrams: bytes) -> Finding:
        def hear(*args: Any, **options: Any) -> DatagramSocket:
            made = DatagramSocket(*args, **options)
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as application:
                for datagram in datagrams:
                    application.sendto(datagram, address)
            return made

        monkeypatch.setattr(latency, "DatagramSocket", hear)
        return tried(config)

    assert "in 0.1 s came 2 latencies" in tried_with(b"t:1|ms:2|ms").why
    odd = tried_with(b"t:1|ms\nt:5x|ms")
    assert (odd.state, "1 malformed (the first: t:0x|ms)" in odd.why) == ("degraded", True)
    other = tried_with(b"tt:1|ms\nu;host=a:1|ms")
    assert other.state == "degraded"
    assert other.why == "has no timing named t, but these: tt, u"


def test_a_folder_that_others_can_write_and_users_who_do_not_exist_are_named(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "open"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    path = str(folder / "statsd.sock")
    assert "other users can write" in tried(StatsdLatency(metric="t", listen=path)).why
    allowed = StatsdLatency(metric="t", listen=path, allowed_users=("nobody-of-that-name",))
    assert "no user 'nobody-of-that-name'" in tried(allowed).why


def test_the_last_lines_of_a_log_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    path.write_text("x\n" * 60_000 + "0 80 4321\n0 81 skipped\n0 82 1ms\n" * 9000)
    config = LinesLatency(path=path, latency="2", latency_unit_s=1e-6)
    works = tried(config)
    assert works.state == "works"
    assert "latencies" in works.why
    assert "failed" in works.why
    path.write_text("0 80 4321\n0 80 alice\n")
    odd = tried(config)
    assert odd.state == "degraded"
    assert odd.why == "its last lines have 1 latencies, 1 malformed (the first: 0 00 xxxxx)"
    path.write_text("")
    assert try_latency(config) is None


@pytest.mark.parametrize(
    ("slo_ms", "state"), [(5.0, "degraded"), (10.0, "works"), (100.0, "works")]
)
def test_a_source_that_is_too_coarse_for_the_target_is_said_to_be(
    tmp_path: Path, slo_ms: float, state: str
) -> None:
    """nginx writes $request_time in whole milliseconds: most requests take none."""
    path = tmp_path / "access.log"
    path.write_text("".join(f"GET / {0.001 * (n % 40):.3f}\n" for n in range(400)))
    config = LinesLatency(path=path, latency="2")
    found = try_latency(config, slo_ms=slo_ms)
    assert found is not None
    assert found.state == state
    assert ("steps of 1 ms" in found.why) == (state == "degraded")
    path.write_text("".join(f"GET / {0.001 * (n % 40) + 1.7e-5:.6f}\n" for n in range(400)))
    fine = try_latency(config, slo_ms=slo_ms)
    assert fine is not None
    assert fine.state == "works"


def test_sources_that_cannot_be_tried() -> None:
    assert tried(GrpcLatency()).state == "works"
    assert try_latency(None) is None


def test_a_log_that_is_not_there_is_said() -> None:
    """The daemon waits for it, and so it does for ever where the path is wrong."""
    found = try_latency(LinesLatency(path=Path("/nowhere/access.log")))
    assert found is not None
    assert (found.state, found.why) == ("degraded", "there is no /nowhere/access.log yet")
    assert "latency.path" in found.next_step


@pytest.fixture
def ordinary_user(tmp_path: Path) -> Iterator[Path]:
    """A folder that this process may not look into meanwhile; it has a log."""
    folder = tmp_path / "0700"
    folder.mkdir()
    (folder / "access.log").write_text("1 2\n" * 10)
    folder.chmod(0)
    before = os.getresuid()
    if before[1] == 0:
        os.setresuid(65534, 65534, 0)
    yield folder
    os.setresuid(*before)
    folder.chmod(0o700)


def test_what_an_ordinary_user_may_not_see_is_said(ordinary_user: Path) -> None:
    found = tried(LinesLatency(path=ordinary_user / "access.log", start="0", end="1"))
    assert found.state == "degraded"
    assert found.why == f"{ordinary_user / 'access.log'} cannot be read by this user"
    found = tried(StatsdLatency(listen=str(ordinary_user / "statsd.sock"), metric="t"))
    assert found.why == f"cannot make a socket in {ordinary_user}"
    fault, _ = configuration._unwritable(ordinary_user / "recordings")
    assert fault == f"{ordinary_user / 'recordings'} cannot be written"


def test_a_log_that_is_compressed_is_named(tmp_path: Path) -> None:
    path = tmp_path / "access.log.gz"
    path.write_bytes(gzip.compress(b"0.001\n" * 10))
    found = tried(LinesLatency(path=path, latency="0"))
    assert (found.state, found.why) == ("degraded", "the log is compressed by gzip")
    assert "zcat" in found.next_step


def config(tmp_path: Path, source: LatencyConfig) -> DaemonConfig:
    """A node made of this machine's processes, on which no stall can be seen."""
    proc = tmp_path / "proc"
    if not proc.exists():
        proc.mkdir()
        for name in ("self", "stat", "meminfo", "vmstat", "swaps", "sys", str(os.getpid())):
            (proc / name).symlink_to(Path("/proc") / name)
    return DaemonConfig(
        node=NodeConfig(zone="/", proc=proc, cgroup=tmp_path / "no-cgroups"),
        protected=ProtectedConfig(processes=ProcessesConfig(pids=(os.getpid(),))),
        background=(SlotConfig(name="a", processes=ProcessesConfig(pids=(2**22 - 3,))),),
        service=ServiceConfig(socket=tmp_path / "run" / "s.sock"),
        journal=JournalConfig(path=tmp_path / "journal"),
        latency=source,
    )


def test_a_source_that_was_tried_is_not_said_to_be_off(endpoint: str, tmp_path: Path) -> None:
    """Although that of another application was not: its log has no line yet."""
    log = tmp_path / "access.log"
    log.touch()
    sources: tuple[LatencyConfig, ...] = (
        LinesLatency(path=log, latency="0"),
        PrometheusLatency(url=f"{endpoint}/metrics", metric="t_seconds"),
    )
    asked = config(tmp_path, sources[0])
    protected = tuple(
        ProtectedConfig(name=name, processes=ProcessesConfig(pids=(pid,)), latency=source)
        for name, pid, source in zip(("web", "db"), (os.getpid(), 2**22 - 5), sources, strict=True)
    )
    both = replace(asked, protected=protected, latency=None)
    names = [one.name for one in examine(both.node.paths, both).findings]
    assert f"latency from {endpoint}/metrics" in names
    assert not [name for name in names if name.startswith("latency of")]


def test_without_stalls_an_endpoint_decides_whether_it_can_be_protected(
    endpoint: str, tmp_path: Path
) -> None:
    blind = "neither a stall nor a latency of the application can be seen"
    for metric, seen in (("t_seconds", True), ("wrong", False)):
        source = PrometheusLatency(url=f"{endpoint}/metrics", metric=metric)
        asked = config(tmp_path, source)
        diagnosis = examine(asked.node.paths, asked)
        assert (blind in diagnosis.obstacles) != seen
        (finding,) = [f for f in diagnosis.findings if "latency" in f.name]
        assert finding.name == f"latency from {endpoint}/metrics"
