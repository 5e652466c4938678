"""The TCP port: every way in without the right certificate is closed."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme
from google.protobuf.descriptor import MethodDescriptor
from service_without_loop import WAIT_S, Service
from tls_nodes import Network, Party, wait_for_port
from typer.testing import CliRunner

from stallward.actuator.cli.ctl import ctl
from stallward.actuator.client import ActuatorClient, RemoteDaemon
from stallward.actuator.errors import (
    ConfigError,
    DaemonError,
    DaemonUnavailableError,
    RequestError,
)
from stallward.actuator.service.remote import MOST_OF_OBSERVER
from stallward.agent.desired import DesiredState
from stallward.fleet import Fleet, load_fleet
from stallward.proto.v1 import stallward_pb2 as pb

CALLS = pb.DESCRIPTOR.services_by_name["ActuatorService"]
OBSERVED = {"Status", "Watch", "Advise", "ListPolicies", "GetExperiment"}


@pytest.fixture
def service(party: Party) -> Iterator[Service]:
    made = party.serve(operators=("operator",))
    made.tick()
    yield made
    made.close()


@pytest.mark.usefixtures("service")
def test_an_observer_sees_everything_and_changes_nothing(party: Party) -> None:
    with ActuatorClient(party.client("observer")) as client:
        client.wait_ready(WAIT_S)
        changing: tuple[Callable[[], object], ...] = (
            lambda: client.apply(DesiredState(), lease_s=1.0, holder="x"),
            lambda: client.release(holder="x"),
            lambda: client.load("default"),
            client.roll_back,
            lambda: client.remove("x"),
            client.experiments.stop,
            lambda: client.push(party.folder / "node.pem", name="x"),
            lambda: client.report([[]]),
        )
        for call in changing:
            with pytest.raises(RequestError, match=r"observer\.example may observe, and \w+ "):
                call()
        assert dict(client.status().refused) == {"PERMISSION_DENIED": len(changing)}


@pytest.mark.slow
@pytest.mark.usefixtures("service")
def test_every_call_that_is_not_known_to_observe_needs_an_operator(party: Party) -> None:
    """So that a call which is added later is closed to observers until somebody opens it."""
    remote = party.client("observer")
    codes = {}
    with grpc.secure_channel(remote.address, remote.credentials()) as channel:
        grpc.channel_ready_future(channel).result(WAIT_S)
        for call in CALLS.methods:
            if call.name not in OBSERVED:
                codes[call.name] = _code(channel, call)
    assert set(codes.values()) == {grpc.StatusCode.PERMISSION_DENIED}
    assert len(codes) == len(CALLS.methods) - len(OBSERVED)


def _code(channel: grpc.Channel, call: MethodDescriptor) -> grpc.StatusCode:
    """How an empty request is refused."""
    make: Any = channel.stream_unary if call.client_streaming else channel.unary_unary
    request: Any = iter([b""]) if call.client_streaming else b""
    with pytest.raises(grpc.RpcError) as caught:
        make(f"/{CALLS.full_name}/{call.name}")(request, timeout=WAIT_S)
    code = caught.value.code()
    assert isinstance(code, grpc.StatusCode)
    return code


@pytest.mark.usefixtures("service")
def test_an_operator_may_do_everything(party: Party) -> None:
    with ActuatorClient(party.client("operator")) as client:
        client.wait_ready(WAIT_S)
        with pytest.raises(RequestError, match="No folder for pushed policies"):
            client.push(party.folder / "node.pem", name="x")


def test_a_lease_over_the_port_belongs_to_the_name_in_the_certificate(
    party: Party, service: Service
) -> None:
    """A word of the client's own would let one operator release what another one holds."""
    service.loop.settimeout(WAIT_S)
    with (
        ActuatorClient(party.client("operator")) as remote,
        ActuatorClient(service.socket) as local,
    ):
        remote.wait_ready(WAIT_S)
        for client in (remote, local):
            call = client._stub.Release.future(pb.ReleaseRequest(holder="me"), timeout=WAIT_S)
            command = pb.Command.FromString(service.loop.recv(1 << 16))
            call.cancel()
            expected = "operator/me" if client is remote else "me"
            assert command.release.holder == expected


@pytest.mark.usefixtures("service")
def test_the_calls_of_a_certificate_are_bounded_and_the_others_are_still_answered(
    party: Party,
) -> None:
    with contextlib.ExitStack() as stack:
        observer = party.client("observer")
        clients = [stack.enter_context(ActuatorClient(observer)) for _ in range(4)]
        clients[0].wait_ready(WAIT_S)
        calls = []
        for number in range(MOST_OF_OBSERVER + 3):
            calls.append(clients[number % 4]._stub.Watch(pb.WatchRequest(), timeout=WAIT_S))
            calls[-1].initial_metadata()  # the service has answered: it watches, or is refused
            stack.callback(calls[-1].cancel)
        deadline_s = time.monotonic() + WAIT_S / 2
        while len(ended := [call for call in calls if not call.is_active()]) < 3:
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        codes = [call.code() for call in ended]
        assert codes == [grpc.StatusCode.RESOURCE_EXHAUSTED] * 3
        with pytest.raises(DaemonError, match=r"observer.* has 64 calls open already"):
            clients[0].status()
        operator = stack.enter_context(ActuatorClient(party.client("operator")))
        assert operator.status().refused


@pytest.mark.slow
def test_a_call_whose_message_does_not_come_has_a_place_that_counts(
    party: Party, service: Service
) -> None:
    """gRPC asks a handler of one message only when that is there."""
    ended = threading.Event()

    def silent() -> Iterator[bytes]:
        ended.wait(WAIT_S)
        yield from ()

    remote = party.client("observer")
    with grpc.secure_channel(remote.address, remote.credentials()) as channel:
        grpc.channel_ready_future(channel).result(WAIT_S)
        watch: Any = channel.stream_stream("/grpc.health.v1.Health/Watch")
        calls = [watch(silent()) for _ in range(MOST_OF_OBSERVER)]
        with ActuatorClient(party.client("observer")) as client:
            deadline_s = time.monotonic() + WAIT_S
            refused = ""
            while not refused and time.monotonic() < deadline_s:
                time.sleep(0.05)
                try:
                    client.status()
                except DaemonError as error:
                    refused = str(error)
            assert "calls open already" in refused
        ended.set()
        for call in calls:
            call.cancel()
    with ActuatorClient(service.socket) as local:
        assert dict(local.status().refused)["RESOURCE_EXHAUSTED"] >= 1


@pytest.mark.usefixtures("service")
def test_the_command_line_reaches_another_machine(
    party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ActuatorClient(party.client("observer")) as client:
        client.wait_ready(WAIT_S)
    socket_option = ("--socket", f"127.0.0.1:{party.port}")
    refused = CliRunner().invoke(ctl, ["status", *socket_option])
    assert isinstance(refused.exception, ConfigError)
    assert "STALLWARD_TLS" in str(refused.exception)
    monkeypatch.setenv("STALLWARD_TLS", str(party.folder / "observer"))
    done = CliRunner().invoke(ctl, ["status", "--json", *socket_option])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["slo_ms"] == 60.0


def test_a_fleet_has_nodes_on_other_machines_and_on_this_one(
    party: Party, service: Service
) -> None:
    """The file names the folder of the certificates; an observer may look, and start nothing."""
    party.client("observer")
    file = party.folder / "fleet.toml"
    file.write_text(
        f'tls = "observer"\n[nodes]\nfar = "127.0.0.1:{party.port}"\nhere = "{service.socket}"\n'
    )
    wait_for_port(party)
    with Fleet(load_fleet(file)) as fleet:
        answers = fleet.ask(lambda _name, client: client.status().slo_ms)
        assert answers.given == {"far": 60.0, "here": 60.0}
        stopped = fleet.ask(lambda _name, client: client.experiments.stop())
    assert "observer.example may observe" in str(stopped.failed["far"])
    assert "No folder for experiments" in str(stopped.failed["here"])


@pytest.mark.usefixtures("service")
def test_nobody_comes_in_without_a_certificate_of_the_authority(party: Party) -> None:
    wait_for_port(party)
    ours = party.client("operator")
    address = ours.address
    authority = ours.authority.read_bytes()
    stranger = party.client("stranger", trustme.CA())
    channels = {
        "without TLS": grpc.insecure_channel(address),
        "without a certificate": grpc.secure_channel(
            address, grpc.ssl_channel_credentials(authority)
        ),
        "of another authority": grpc.secure_channel(address, stranger.credentials()),
    }
    for how, channel in channels.items():
        ask: Any = channel.unary_unary(f"/{CALLS.full_name}/Status")
        with channel, pytest.raises(grpc.RpcError) as caught:
            ask(b"", timeout=WAIT_S)
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE, how


@pytest.mark.usefixtures("service")
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_old_versions_of_tls_are_refused(party: Party) -> None:
    wait_for_port(party)
    context = ssl.create_default_context(cafile=party.folder / "clients.pem")
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with (
        socket.create_connection(("127.0.0.1", party.port), timeout=WAIT_S) as plain,
        pytest.raises((ssl.SSLError, ConnectionError)),
    ):
        context.wrap_socket(plain, server_hostname="127.0.0.1")


def test_a_renewed_certificate_is_shown_without_a_restart(party: Party, service: Service) -> None:
    wait_for_port(party)
    context = ssl.create_default_context(cafile=party.folder / "clients.pem")

    def shown() -> bytes | None:
        with (
            socket.create_connection(("127.0.0.1", party.port), timeout=WAIT_S) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as encrypted,
        ):
            return encrypted.getpeercert(binary_form=True)

    first = shown()
    assert shown() == first
    party.certify()
    assert shown() != first
    (party.folder / "node.key").unlink()
    assert shown() is not None, "what was read last stays in force"
    assert service.is_alive()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root doubts its files")
def test_an_authority_that_others_can_write_takes_the_place_of_none(
    party: Party, service: Service
) -> None:
    """Whoever can write it decides who is an operator."""
    wait_for_port(party)
    theirs = trustme.CA()
    authority = party.folder / "clients.pem"
    authority.chmod(0o666)
    authority.write_bytes(theirs.cert_pem.bytes())
    intruder = party.client("operator", theirs)
    with grpc.secure_channel(intruder.address, intruder.credentials()) as channel:
        ask: Any = channel.unary_unary(f"/{CALLS.full_name}/Status")
        with pytest.raises(grpc.RpcError) as caught:
            ask(b"", timeout=WAIT_S)
    assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
    with ActuatorClient(party.client("observer")) as client:
        assert client.wait_ready(WAIT_S), "the earlier one stays in force"
    assert "others may have written it" in service.socket.with_suffix(".messages").read_text()


@contextlib.contextmanager
def ticking(service: Service) -> Iterator[None]:
    """The loop sends ticks: a watcher sees those that come after it was let in."""
    ended = threading.Event()

    def tick() -> None:
        while not ended.wait(0.05):
            service.tick()

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.mark.slow
def test_a_watcher_notices_that_the_network_failed(party: Party, service: Service) -> None:
    """Nothing closes the connection, and the daemon's last words were that all is well."""
    wait_for_port(party)
    network = Network(party.port)
    try:
        remote = party.client("observer")
        remote = replace(remote, address=f"127.0.0.1:{network.port}", silence_s=0.9)
        with ActuatorClient(remote) as client:
            client.wait_ready(WAIT_S)
            ticks = client.watch()
            with ticking(service):
                assert next(ticks)
            network.fail()
            with pytest.raises(DaemonUnavailableError, match=f"127.0.0.1:{network.port}"):
                for _ in ticks:  # some were on their way
                    pass
        with ActuatorClient(party.client("observer")) as client:
            assert client.wait_ready(WAIT_S), "the daemon is well, and so is another connection"
    finally:
        network.close()


@pytest.mark.slow
def test_clients_whose_network_failed_lose_their_places_among_the_watchers(party: Party) -> None:
    """They close nothing, and wait much longer for the daemon than it does for them."""
    silence_s = 5.0  # a busy machine must not be taken for a network that failed
    service = party.serve(remote_silence_s=silence_s)
    wait_for_port(party)
    network = Network(party.port)
    direct = party.client("observer")
    patient = replace(direct, address=f"127.0.0.1:{network.port}", silence_s=600.0)
    try:
        with contextlib.ExitStack() as stack, ticking(service):
            lost = [stack.enter_context(ActuatorClient(patient)) for _ in range(4)]
            for number in range(MOST_OF_OBSERVER):
                call = lost[number % 4]._stub.Watch(pb.WatchRequest(), timeout=WAIT_S)
                call.initial_metadata()  # it watches
                stack.callback(call.cancel)
            other = stack.enter_context(ActuatorClient(direct))
            assert not _watches(other), "all places are taken"
            time.sleep(1.5 * silence_s)
            assert not _watches(other), "a client that answers keeps its place"
            network.fail()
            deadline_s = time.monotonic() + WAIT_S / 2
            while not _watches(other):
                assert time.monotonic() < deadline_s
                time.sleep(0.1)
    finally:
        network.close()
        service.close()


def _watches(client: ActuatorClient) -> bool:
    """Whether the daemon lets a client watch now; it must have ticks."""
    try:
        return bool(next(client.watch()))
    except DaemonError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return False


@pytest.mark.slow
def test_a_watcher_of_a_silent_daemon_goes_on(party: Party, service: Service) -> None:
    """A daemon that has no ticks still answers whether it lives."""
    wait_for_port(party)
    remote = replace(party.client("observer"), silence_s=4.5)
    with ActuatorClient(remote) as client:
        client.wait_ready(WAIT_S)
        ticks = client.watch()
        with ticking(service):
            assert next(ticks)
        time.sleep(4.0)
        service.tick(99)
        assert any(watched.record.sequence == 99 for watched in ticks)


@pytest.mark.slow
def test_without_its_key_the_port_stays_closed_and_the_status_says_so(party: Party) -> None:
    (party.folder / "node.key").unlink()
    service = party.serve()
    try:
        service.tick()
        with ActuatorClient(service.socket) as client:
            client.wait_ready(WAIT_S)
            deadline_s = time.monotonic() + WAIT_S
            while len(missing := client.status().missing) < 2:
                assert time.monotonic() < deadline_s
                time.sleep(0.05)
        assert missing[1].startswith(f"remote: {party.folder / 'node.key'} cannot be read")
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", party.port), timeout=1.0)
        party.certify()
        wait_for_port(party)  # it is tried again
    finally:
        service.close()


def test_what_is_missing_for_a_remote_daemon_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"ca\.pem cannot be read.*10\.0\.0\.1:7443"):
        ActuatorClient(RemoteDaemon.with_folder("10.0.0.1:7443", tmp_path))


def test_a_node_that_is_not_there_is_named(party: Party) -> None:
    with (
        ActuatorClient(party.client("operator")) as client,
        pytest.raises(DaemonUnavailableError, match=f"127.0.0.1:{party.port}"),
    ):
        client.wait_ready(0.5)
