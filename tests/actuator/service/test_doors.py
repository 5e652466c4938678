"""Whoever fills one door of the service keeps nobody out of another one."""

from __future__ import annotations

import contextlib
import resource
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from service_without_loop import WAIT_S, Service, ServiceProcess
from tls_nodes import Party, wait_for_port

from stallward.actuator.client import ActuatorClient
from stallward.actuator.runtime.process_start import QUIET_GRPC
from stallward.actuator.service.doors import FIRST_WORDS_S, LOCAL, REMOTE, REPORTS, Door, Doors
from stallward.actuator.service.latency_reports import MAX_REQUESTS
from stallward.actuator.service.remote import (
    MOST_OF_OBSERVER,
    MOST_OF_OBSERVERS,
    CallBudget,
    TooManyCallsError,
)
from stallward.actuator.service.watchers import MOST_WATCHERS, TooManyWatchersError, Watchers
from stallward.proto.v1 import stallward_pb2 as pb

IDLE = 1100
"""More than the descriptors that a service process has at first where systemd starts it."""
ANSWER_S = 1.0


@pytest.fixture
def many_files() -> Iterator[None]:
    """Let the test itself open so many."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] < 2 * IDLE:
        pytest.skip("the hard limit of open files is too low for the attack")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(2 * IDLE, before[0]), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def connect(stack: contextlib.ExitStack, family: int, address: Any) -> list[socket.socket]:
    """Connect often, and say nothing."""
    made = []
    for _ in range(IDLE):
        one = stack.enter_context(socket.socket(family))
        one.settimeout(ANSWER_S)
        with contextlib.suppress(OSError):  # it is refused at once
            one.connect(address)
        one.setblocking(False)
        made.append(one)
    return made


def still_open(connections: list[socket.socket]) -> int:
    """How many connections the service has not closed."""
    count = 0
    for one in connections:
        try:
            while one.recv(1 << 12):
                pass
        except BlockingIOError:
            count += 1
        except OSError:
            pass
    return count


def wait_until(condition: Callable[[], bool], within_s: float = WAIT_S) -> None:
    deadline_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


@pytest.mark.usefixtures("many_files")
@pytest.mark.parametrize("door", ["remote", "reports"])
def test_idle_connections_at_one_door_keep_root_out_of_no_other(party: Party, door: str) -> None:
    """They need no certificate, and the application itself may be the one that connects."""
    service = party.serve(report_socket=party.folder / "r")
    service.tick()
    wait_for_port(party)
    family: int = socket.AF_INET
    address: Any = ("127.0.0.1", party.port)
    most = REMOTE.connections
    if door == "reports":
        family, address, most = socket.AF_UNIX, str(service.report_socket), REPORTS.connections
    try:
        with contextlib.ExitStack() as stack, ActuatorClient(service.socket) as client:
            client.wait_ready(WAIT_S)
            idle = connect(stack, family, address)
            asked_s = time.monotonic()
            assert client.status().slo_ms == 60.0
            assert time.monotonic() - asked_s < ANSWER_S
            wait_until(lambda: still_open(idle) <= most, FIRST_WORDS_S / 2)  # before all of them
    finally:
        service.close()


@pytest.mark.slow
@pytest.mark.usefixtures("many_files")
def test_a_connection_that_says_nothing_is_closed_and_its_place_is_free(party: Party) -> None:
    service = party.serve()
    service.tick()
    wait_for_port(party)
    try:
        with contextlib.ExitStack() as stack:
            idle = connect(stack, socket.AF_INET, ("127.0.0.1", party.port))
            wait_until(lambda: still_open(idle) == 0)
            observer = stack.enter_context(ActuatorClient(party.client("observer")))
            observer.wait_ready(WAIT_S)
    finally:
        service.close()


def test_the_doors_have_room_beside_each_other_whatever_the_limit() -> None:
    for files in (0, 100, 800, 10_000):
        doors = Doors().within(files)
        assert all(
            8 <= door.connections <= wanted.connections
            for door, wanted in (
                (doors.local, LOCAL),
                (doors.reports, REPORTS),
                (doors.remote, REMOTE),
            )
        )
        assert doors.connections <= max(files, 24)
    assert "grpc.max_connection_idle_ms" not in dict(
        Door(connections=1, calls=1, idle_s=None).options()
    )


def test_observers_leave_operators_calls_and_each_other_some() -> None:
    budget = CallBudget()
    with contextlib.ExitStack() as places:
        for _ in range(MOST_OF_OBSERVER):
            places.enter_context(budget.call("greedy", operator=False))
        with pytest.raises(TooManyCallsError, match="greedy has 64 calls"):
            places.enter_context(budget.call("greedy", operator=False))
        for number in range(MOST_OF_OBSERVERS - MOST_OF_OBSERVER):
            places.enter_context(budget.call(f"observer {number}", operator=False))
        with pytest.raises(TooManyCallsError, match="All observers together"):
            places.enter_context(budget.call("one more", operator=False))
        places.enter_context(budget.call("ops", operator=True))
    with budget.call("greedy", operator=False):
        pass


def test_those_who_watch_by_the_port_take_no_place_of_the_socket() -> None:
    assert MOST_OF_OBSERVERS < MOST_WATCHERS, "operators find a place among them"
    watchers = Watchers[int]()
    with contextlib.ExitStack() as places:
        for _ in range(MOST_WATCHERS):
            places.enter_context(watchers.watch("remote"))
        with pytest.raises(TooManyWatchersError):
            places.enter_context(watchers.watch("remote"))
        local = places.enter_context(watchers.watch("local"))
        watchers.send(1)
        assert local.queue.get_nowait() == 1


@pytest.mark.slow
def test_a_flood_of_reports_delays_no_operator(
    tmp_path: Path, start: Callable[..., Service]
) -> None:
    service = start(report_socket=tmp_path / "r")
    service.tick()
    full = pb.ReportRequest(
        requests=[pb.ReportedRequest(latency_ms=1.0, ended_ago_ms=0.0)] * MAX_REQUESTS
    ).SerializeToString()

    def flood() -> Iterator[bytes]:
        while True:
            yield full

    with ActuatorClient(service.socket) as client, contextlib.ExitStack() as stack:
        client.wait_ready(WAIT_S)
        for _ in range(4):
            channel = stack.enter_context(grpc.insecure_channel(f"unix:{service.report_socket}"))
            report: Any = channel.stream_unary("/stallward.proto.v1.ActuatorService/Report")
            stack.callback(report.future(flood()).cancel)
        time.sleep(1.0)
        for _ in range(5):
            asked_s = time.monotonic()
            client.status()
            assert time.monotonic() - asked_s < ANSWER_S


@pytest.mark.slow
def test_refused_handshakes_write_nothing(party: Party, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in QUIET_GRPC.items():
        monkeypatch.setenv(name, value)
    service = party.serve(kind=ServiceProcess)
    wait_for_port(party)
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", party.port)) as plain:
            plain.sendall(b"no TLS at all\r\n" * 40)
            plain.settimeout(WAIT_S)
            with contextlib.suppress(OSError):
                plain.recv(1 << 12)
    assert isinstance(service, ServiceProcess)
    service.process.terminate()
    assert service.process.communicate(timeout=WAIT_S)[1] == ""
    service.close()
