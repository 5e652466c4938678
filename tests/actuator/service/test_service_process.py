"""The service as a process: what its sockets answer, and what keeps it from serving nothing."""

from __future__ import annotations

import os
import socket
import stat
import time
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from service_without_loop import WAIT_S, ServiceProcess

from stallward.actuator.client import ActuatorClient, Reported
from stallward.actuator.errors import DaemonError, RequestError
from stallward.actuator.ipc.channels import EXIT_USER
from stallward.agent.desired import DesiredState


def wait_for(path: Path) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not path.exists():
        assert time.monotonic() < deadline_s, f"no {path}"
        time.sleep(0.02)


def test_on_the_socket_for_reports_nothing_else_can_be_done(
    tmp_path: Path, start_process: Callable[..., ServiceProcess]
) -> None:
    service = start_process(report_socket=tmp_path / "r", report_group=str(os.getgid()))
    wait_for(service.report_socket)
    with ActuatorClient(service.report_socket) as client:
        assert client.report([[Reported(latency_ms=5.0)]]).accepted == 1
        for call in (
            client.status,
            lambda: client.apply(DesiredState(), lease_s=1.0, holder="x"),
            lambda: client.release(holder="x"),
            lambda: client.load("/etc/passwd"),
            lambda: next(client.watch()),
        ):
            with pytest.raises(RequestError, match="does not answer this call"):
                call()
    service.latencies.settimeout(WAIT_S)
    assert service.latencies.recv(1 << 16), "it arrives"
    assert stat.S_IMODE(service.socket.stat().st_mode) == 0o600
    assert stat.S_IMODE(service.report_socket.stat().st_mode) == 0o660


def test_the_socket_for_reports_says_how_the_service_is(
    tmp_path: Path, start_process: Callable[..., ServiceProcess]
) -> None:
    service = start_process(report_socket=tmp_path / "r", report_mode=0o666)
    wait_for(service.report_socket)
    service.tick()
    with grpc.insecure_channel(f"unix:{service.report_socket}") as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        request = health_pb2.HealthCheckRequest()
        deadline_s = time.monotonic() + WAIT_S
        serving = health_pb2.HealthCheckResponse.SERVING
        while stub.Check(request, wait_for_ready=True, timeout=WAIT_S).status != serving:
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
    assert stat.S_IMODE(service.report_socket.stat().st_mode) == 0o666


@pytest.mark.parametrize("group", ["no-such-group", "12345"])
def test_a_group_is_there_or_the_service_does_not_start(
    tmp_path: Path, start_process: Callable[..., ServiceProcess], group: str
) -> None:
    service = start_process(report_socket=tmp_path / "r", report_group=group)
    if group.isdigit():
        wait_for(service.report_socket)
        assert service.process.poll() is None
    else:
        assert service.process.wait(WAIT_S) == EXIT_USER


def test_a_busy_port_of_the_metrics_ends_no_service(
    start_process: Callable[..., ServiceProcess],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taker:
        service = start_process(metrics=f"127.0.0.1:{taker.getsockname()[1]}")
        wait_for(service.socket)
        service.tick()
        with ActuatorClient(service.socket) as client:
            deadline_s = time.monotonic() + WAIT_S
            while True:
                assert time.monotonic() < deadline_s
                try:
                    missing = client.status().missing
                except DaemonError:
                    missing = ()
                if len(missing) > 1:
                    break
                time.sleep(0.05)
    assert missing[0] == "io_max: no disk"
    assert missing[1].startswith("metrics: Metrics cannot be served at 127.0.0.1:")
    assert "in use" in missing[1]
    assert service.process.poll() is None
