"""Nodes that are endpoints of a Kubernetes Service, asked over HTTPS."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from cluster_api import ClusterApi, endpoint, endpoint_slice

from stallward.actuator.client import RemoteDaemon
from stallward.actuator.errors import ConfigError
from stallward.fleet import FleetSource, load_fleet
from stallward.fleet.errors import DiscoveryError


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ClusterApi]:
    made = ClusterApi(tmp_path)
    yield made
    made.close()


def fleet_file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "nodes.toml"
    path.write_text(f'tls = "tls"\n{text}')
    return path


def found(tmp_path: Path, text: str) -> dict[str, str]:
    return {name: str(one) for name, one in load_fleet(fleet_file(tmp_path, text)).items()}


def test_endpoints_that_are_ready_are_nodes_named_by_their_machines(
    api: ClusterApi, tmp_path: Path
) -> None:
    api.slices = [
        endpoint_slice(
            endpoint("10.0.0.1", "worker-1", "stallward-x"),
            endpoint("10.0.0.2", "worker-2", "stallward-y", ready=None),
            endpoint("10.0.0.3", "worker-3", "stallward-z", ready=False),
        ),
        endpoint_slice(endpoint("fd00::4", "worker-4", "stallward-w")),
        endpoint_slice(endpoint("10.0.0.5", "worker-5", ready=False), ports=()),
    ]
    api.page = 1
    assert found(tmp_path, api.table()) == {
        "worker-1": "10.0.0.1:7443",
        "worker-2": "10.0.0.2:7443",
        "worker-4": "[fd00::4]:7443",
    }
    assert len(api.asked) == 3  # page by page


def test_several_on_one_machine_have_the_names_of_their_pods(
    api: ClusterApi, tmp_path: Path
) -> None:
    api.slices = [
        endpoint_slice(
            endpoint("10.0.0.1", "worker", "one"),
            endpoint("10.0.0.2", "worker", "two"),
            endpoint("10.0.0.3"),
        )
    ]
    assert set(found(tmp_path, api.table())) == {"one", "two", "10.0.0.3:7443"}


def test_a_pod_with_addresses_of_both_families_is_one_node(
    api: ClusterApi, tmp_path: Path
) -> None:
    single = endpoint("fd00::9", "worker-3", "c")
    api.slices = [
        endpoint_slice(endpoint("fd00::1", "worker-1", "a"), endpoint("fd00::2", "worker-2", "b")),
        endpoint_slice(
            endpoint("10.0.0.1", "worker-1", "a"), endpoint("10.0.0.2", "worker-2", "b")
        ),
        endpoint_slice(single, endpoint("10.0.0.4", "worker-4", "d")),
        endpoint_slice(
            endpoint("10.0.0.5", "worker-4", "e"), endpoint("fd00::5", "worker-4", "e")
        ),
        endpoint_slice(endpoint("10.0.0.6", "worker-5"), endpoint("10.0.0.7", "worker-5")),
    ]
    assert found(tmp_path, api.table()) == {
        "worker-1": "10.0.0.1:7443",
        "worker-2": "10.0.0.2:7443",
        "worker-3": "[fd00::9]:7443",
        "d": "10.0.0.4:7443",
        "e": "10.0.0.5:7443",
        "10.0.0.6:7443": "10.0.0.6:7443",
        "10.0.0.7:7443": "10.0.0.7:7443",
    }


def test_one_of_several_ports_is_named_and_so_is_what_the_certificates_are_for(
    api: ClusterApi, tmp_path: Path
) -> None:
    ports = (("grpc", 7443), ("metrics", 9180))
    api.slices = [endpoint_slice(endpoint("10.0.0.1", "w"), ports=ports)]
    with pytest.raises(DiscoveryError, match="has 2 ports of the name ''"):
        load_fleet(fleet_file(tmp_path, api.table()))
    text = api.table(port="grpc", server_name="stallward.example")
    daemon = load_fleet(fleet_file(tmp_path, text))["w"]
    assert isinstance(daemon, RemoteDaemon)
    assert (daemon.address, daemon.server_name) == ("10.0.0.1:7443", "stallward.example")
    assert found(tmp_path, api.table(port="9180")) == {"w": "10.0.0.1:9180"}


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (
            403,
            b"forbidden",
            "answers 403 Forbidden: forbidden Let the user or the service account",
        ),
        (404, b'{"message": "no such API"}', "answers 404 Not Found: no such API Look whether"),
        (500, b"broken", "answers 500"),
        (302, b"", "answers 302"),  # the token goes nowhere else
        (200, b"<html>", r"gave no list of EndpointSlices \(JSON is malformed"),
        (200, b"[]", "gave no list of EndpointSlices"),
        (200, b'{"items":[{"ports":[{"port":1}],"endpoints":[{}]}],"metadata":{}}', "understood"),
        (200, b'{"items":[],"metadata":{}}', "finds no node"),
    ],
)
def test_an_api_that_refuses_or_answers_something_else(
    api: ClusterApi, tmp_path: Path, status: int, body: bytes, message: str
) -> None:
    api.status, api.body = status, body
    with pytest.raises(DiscoveryError, match=message):
        load_fleet(fleet_file(tmp_path, api.table()))
    assert not any("elsewhere" in one for one in api.asked)


def test_a_wrong_token_a_wrong_authority_and_a_server_without_tls_are_refused(
    api: ClusterApi, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("another")
    with pytest.raises(DiscoveryError, match=r"401 .* has not run out"):
        load_fleet(fleet_file(tmp_path, api.table()))
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.crt")
    with pytest.raises(DiscoveryError, match="certificate verify failed"):
        load_fleet(fleet_file(tmp_path, api.table()))
    with pytest.raises(DiscoveryError, match="for everybody to read"):
        load_fleet(fleet_file(tmp_path, api.table(server="http://127.0.0.1:1")))
    (tmp_path / "token").unlink()
    with pytest.raises(DiscoveryError, match=r"token cannot be read"):
        load_fleet(fleet_file(tmp_path, api.table()))


def test_outside_of_a_cluster_the_server_must_be_named(
    api: ClusterApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.slices = [endpoint_slice(endpoint("10.0.0.1", "w"))]
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(DiscoveryError, match="does not run in a Kubernetes cluster"):
        load_fleet(fleet_file(tmp_path, api.table(server="")))
    host, port = api.address.removeprefix("https://").split(":")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    assert found(tmp_path, api.table(server="")) == {"w": "10.0.0.1:7443"}


def test_nodes_come_and_go_and_stay_known_while_the_api_is_down(
    api: ClusterApi, tmp_path: Path
) -> None:
    def listed(*hosts: str) -> list[Any]:
        return [endpoint_slice(*(endpoint(f"10.0.0.{one}", f"w{one}") for one in hosts))]

    api.slices = listed("1", "2")
    text = f'[nodes]\nhere = "/tmp/s"\n{api.table()}'
    source = FleetSource(fleet_file(tmp_path, text))
    assert source.may_change
    assert set(source.look().joined) == {"here", "w1", "w2"}
    api.slices = listed("2", "3")
    changes = source.look()
    assert (set(changes.joined), changes.left) == ({"w3"}, ("w1",))
    api.status = 503
    changes = source.look()
    assert not changes.joined
    assert not changes.left
    assert "answers 503" in str(changes.problems["the service stallward"])
    assert set(source.nodes) == {"here", "w2", "w3"}
    api.status, api.slices = 200, []  # all at once: that is a failure, too
    assert source.look().left == ()
    api.slices = [endpoint_slice(endpoint("10.0.0.9", "w2"))]
    changes = source.look()
    assert (set(changes.joined), set(changes.left)) == ({"w2"}, {"w2", "w3"})  # it has moved


def test_one_name_for_two_daemons_is_refused(api: ClusterApi, tmp_path: Path) -> None:
    api.slices = [endpoint_slice(endpoint("10.0.0.1", "w"))]
    text = f'[nodes]\nw = "/tmp/s"\n{api.table()}'
    with pytest.raises(DiscoveryError, match="Name each node in one place only"):
        load_fleet(fleet_file(tmp_path, text))


def test_a_file_without_nodes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="names no node"):
        load_fleet(fleet_file(tmp_path, ""))
