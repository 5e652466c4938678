"""Calls that no servicer can answer are refused with the right status, counted, and logged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from service_without_loop import WAIT_S, ServiceProcess

from stallward.actuator.client import ActuatorClient

SERVICE = "/stallward.proto.v1.ActuatorService"
NO_MESSAGE = b"\xff\xff\xff"


def code_of(call: Callable[[], Any]) -> tuple[str, str]:
    """The status of a call, and its text."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    assert isinstance(caught.value, grpc.Call)
    return caught.value.code().name, caught.value.details()


@pytest.fixture
def channel(start_process: Callable[..., ServiceProcess]) -> Iterator[tuple[ServiceProcess, Any]]:
    service = start_process()
    with grpc.insecure_channel(f"unix:{service.socket}") as made:
        grpc.channel_ready_future(made).result(WAIT_S)
        yield service, made


def test_a_message_that_cannot_be_read_is_an_invalid_argument(
    channel: tuple[ServiceProcess, Any],
) -> None:
    service, made = channel
    one = made.unary_unary(f"{SERVICE}/Status")
    watch = made.unary_stream(f"{SERVICE}/Watch")
    push = made.stream_unary(f"{SERVICE}/Report")
    for call in (
        lambda: one(NO_MESSAGE, timeout=WAIT_S),
        lambda: next(watch(NO_MESSAGE, timeout=WAIT_S)),
        lambda: push(iter([b"", NO_MESSAGE]), timeout=WAIT_S),
        lambda: made.unary_unary("/grpc.health.v1.Health/Check")(NO_MESSAGE, timeout=WAIT_S),
    ):
        code, text = code_of(call)
        assert code == "INVALID_ARGUMENT"
        assert "Request'" in text, "it names the message"
    service.tick()
    with ActuatorClient(service.socket) as client:
        assert dict(client.wait_ready().refused) == {"INVALID_ARGUMENT": 4}


def test_a_call_that_does_not_exist_is_counted_and_logged(
    channel: tuple[ServiceProcess, Any],
) -> None:
    service, made = channel
    call = made.unary_unary(f"{SERVICE}/Nonsense")
    assert code_of(lambda: call(b"", timeout=WAIT_S))[0] == "UNIMPLEMENTED"
    # A stream of which no message ever comes is answered as well.
    silent = made.stream_unary(f"{SERVICE}/Nonsense")
    assert code_of(lambda: silent(iter([]), timeout=WAIT_S))[0] == "UNIMPLEMENTED"
    service.tick()
    with ActuatorClient(service.socket) as client:
        assert dict(client.wait_ready().refused) == {"UNIMPLEMENTED": 2}
    service.process.terminate()
    assert service.process.stderr is not None
    line = service.process.stderr.readline()
    assert f"UNIMPLEMENTED: There is no call {SERVICE}/Nonsense." in line


def test_streams_of_other_services_go_on(channel: tuple[ServiceProcess, Any]) -> None:
    """Health's Watch writes by itself, and reflection answers each message of a stream."""
    service, made = channel
    service.tick()
    statuses = health_pb2_grpc.HealthStub(made).Watch(
        health_pb2.HealthCheckRequest(), timeout=WAIT_S
    )
    assert any(status.status == health_pb2.HealthCheckResponse.SERVING for status in statuses)
    statuses.cancel()
    stub = reflection_pb2_grpc.ServerReflectionStub(made)
    wanted = reflection_pb2.ServerReflectionRequest(list_services="")
    answers = list(stub.ServerReflectionInfo(iter([wanted, wanted]), timeout=WAIT_S))
    assert len(answers) == 2
    assert SERVICE[1:] in {service.name for service in answers[0].list_services_response.service}
