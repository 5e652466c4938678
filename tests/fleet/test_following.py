"""A watch follows nodes that come and go, by mutual TLS and a cluster's API."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from cluster_api import ClusterApi, endpoint, endpoint_slice
from service_without_loop import WAIT_S, Service
from tls_nodes import Party, make_party, wait_for_port

from stallward.actuator.client.remote_daemon import RemoteDaemon
from stallward.actuator.errors import ConfigError
from stallward.fleet import Fleet, FleetFollower, FleetSource, FleetWatch
from stallward.fleet import watch as watching
from stallward.fleet.discovery.fleet_source import KnownNodes

SERVER_NAME = "stallward.example"
Nodes = dict[str, tuple[Party, Service]]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    authority = trustme.CA()
    with contextlib.ExitStack() as stack:
        made = {}
        for name in ("a", "b"):
            folder = tmp_path / name
            folder.mkdir()
            party = make_party(folder, authority)
            certificate = authority.issue_cert(SERVER_NAME)  # and not for the address
            certificate.private_key_pem.write_to_path(folder / "node.key")
            certificate.cert_chain_pems[0].write_to_path(folder / "node.pem")
            service = party.serve()
            stack.callback(service.close)
            wait_for_port(party)
            made[name] = (party, service)
        yield made


@pytest.fixture
def ticking(nodes: Nodes) -> Iterator[None]:
    """All nodes tick."""
    ended = threading.Event()

    def tick() -> None:
        sequence = 0
        while not ended.wait(0.02):
            sequence += 1
            for _, service in nodes.values():
                service.tick(sequence)

    thread = threading.Thread(target=tick)
    thread.start()
    yield
    ended.set()
    thread.join()


def slices(nodes: Nodes, *names: str) -> list[Any]:
    return [
        endpoint_slice(endpoint("127.0.0.1", name), ports=(("grpc", nodes[name][0].port),))
        for name in names
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("ticking")
def test_nodes_that_join_are_watched_and_those_that_leave_are_not(
    nodes: Nodes, tmp_path: Path
) -> None:
    nodes["a"][0].client("observer")
    api = ClusterApi(tmp_path)
    file, told = tmp_path / "nodes.toml", list[str]()
    file.write_text(f'tls = "a/observer"\n{api.table(server_name=SERVER_NAME)}')
    api.slices = slices(nodes, "a")
    source = FleetSource(file)
    assert not source.look().problems

    def until(done: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + WAIT_S
        while not done():
            assert time.monotonic() < deadline_s, (told, watch.counts)
            watch.next(0.05)

    with (
        contextlib.closing(api),
        Fleet(source.nodes) as fleet,
        FleetWatch(fleet) as watch,
        FleetFollower(source, watch, told.append, every_s=0.1),
    ):
        until(lambda: watch.counts["a"].received > 0)
        api.slices = slices(nodes, "a", "b")
        until(lambda: "b" in watch.counts and watch.counts["b"].received > 0)
        api.status = 503
        until(lambda: any("answers 503" in one for one in told))
        begun = watch.counts["b"].received
        until(lambda: watch.counts["b"].received > begun + 20)  # for several lookups
        api.status, api.slices = 200, slices(nodes, "b")
        until(lambda: "a has left" in told)
        assert watch.counts["a"].problem == "It has left the fleet."
        assert watch.slots("a") == ()
        begun = watch.counts["b"].received
        until(lambda: watch.counts["b"].received > begun)
        api.slices = slices(nodes, "a", "b")
        until(lambda: watch.counts["a"].problem == "")
    assert sum("answers 503" in one for one in told) == 1
    assert "The nodes known so far are watched on." in "".join(told)
    assert [one.partition(":")[0] for one in told if "join" in one] == [
        "b has joined",
        "a has joined",
    ]


class Source(FleetSource):
    """A source that finds what a test says."""

    def __init__(self, *names: str) -> None:
        self.found = set(names)
        self.may_change = True  # type: ignore[misc]
        self._sources = {"test": lambda: {name: Path(name) for name in sorted(self.found)}}
        self._known = KnownNodes()  # type: ignore[misc]
        self.look()


class Client:
    """A client that cannot be made while its certificate is being renewed."""

    renewing = False

    def __init__(self, daemon: Path | RemoteDaemon) -> None:
        if Client.renewing:
            raise ConfigError("client.pem cannot be read.")
        self.daemon = daemon
        self._closed = threading.Event()

    def watch(self, every: int) -> Iterator[Any]:
        self._closed.wait(WAIT_S)
        return iter(())

    def close(self) -> None:
        self._closed.set()


def test_nodes_that_cannot_be_watched_at_first_are_watched_after_a_later_lookup(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watching, "ActuatorClient", Client)
    source, told = Source("a"), list[str]()

    def until(done: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + WAIT_S
        while not done():
            assert time.monotonic() < deadline_s, (told, watch.watched)
            time.sleep(0.01)

    monkeypatch.setattr(Client, "renewing", False)
    with (
        Fleet(source.nodes) as fleet,
        FleetWatch(fleet) as watch,
        FleetFollower(source, watch, told.append, every_s=0.02),
    ):
        Client.renewing = True
        source.found = {"a", "b", "c", "d"}
        until(lambda: len(told) == 3)
        time.sleep(0.1)  # some lookups more
        assert told == [f"{name} cannot be watched: client.pem cannot be read." for name in "bcd"]
        source.found = {"a", "b", "c"}  # one leaves that never was watched
        time.sleep(0.1)
        Client.renewing = False
        until(lambda: set(watch.watched) == {"a", "b", "c"})
        source.found = {"b"}
        until(lambda: set(watch.watched) == {"b"})
    assert sorted(told[3:5]) == ["b has joined: b", "c has joined: c"]
    assert sorted(told[5:]) == ["a has left", "c has left"]
