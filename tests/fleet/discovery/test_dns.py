"""Nodes in the DNS: by a server that answers over UDP, and by the system's resolver."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import dns.message
import dns.rcode
import dns.rrset
import pytest

from stallward.actuator.client import RemoteDaemon
from stallward.actuator.errors import ConfigError
from stallward.fleet import FleetSource, load_fleet
from stallward.fleet.errors import DiscoveryError

NAME = "_stallward._tcp.example.org"


class Server(threading.Thread):
    """Answers questions for SRV records."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.records: list[str] = []
        self.rcode = dns.rcode.NOERROR
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self.start()

    def run(self) -> None:
        while True:
            data, asker = self._socket.recvfrom(4096)
            if not data:
                return
            query = dns.message.from_wire(data)
            answer = dns.message.make_response(query)
            answer.set_rcode(self.rcode)
            if self.records:
                answer.answer.append(
                    dns.rrset.from_text(query.question[0].name, 5, "IN", "SRV", *self.records)
                )
            self._socket.sendto(answer.to_wire(), asker)

    def close(self) -> None:
        host, port = self.address.split(":")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ending:
            ending.sendto(b"", (host, int(port)))
        self.join()
        self._socket.close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def fleet_file(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "nodes.toml"
    path.write_text("\n".join(['tls = "tls"', "[dns]", *lines]))
    return path


def srv_file(tmp_path: Path, server: Server, *more: str) -> Path:
    return fleet_file(tmp_path, f'service = "{NAME}"', f'resolver = "{server.address}"', *more)


def test_each_srv_record_is_a_node_named_by_its_host(server: Server, tmp_path: Path) -> None:
    server.records = [
        "0 5 7443 web-1.example.org.",
        "0 5 7444 web-2.example.org.",
        "0 5 7001 web-3.example.org.",
        "0 5 7002 web-3.example.org.",
    ]
    nodes = load_fleet(srv_file(tmp_path, server, 'server_name = "nodes.example.org"'))
    assert {name: str(one) for name, one in nodes.items()} == {
        "web-1.example.org": "web-1.example.org:7443",
        "web-2.example.org": "web-2.example.org:7444",
        "web-3.example.org:7001": "web-3.example.org:7001",
        "web-3.example.org:7002": "web-3.example.org:7002",
    }
    for one in nodes.values():
        assert isinstance(one, RemoteDaemon)
        assert one.server_name == "nodes.example.org"


def test_nodes_stay_known_while_the_name_does_not_exist(server: Server, tmp_path: Path) -> None:
    server.records = ["0 5 7443 web-1.example.org.", "0 5 7443 web-2.example.org."]
    source = FleetSource(srv_file(tmp_path, server))
    assert set(source.look().joined) == {"web-1.example.org", "web-2.example.org"}
    server.records, server.rcode = [], dns.rcode.NXDOMAIN
    changes = source.look()
    assert changes.left == ()
    assert "cannot be looked up" in str(changes.problems[NAME])
    server.records, server.rcode = ["0 5 7443 web-2.example.org."], dns.rcode.NOERROR
    assert source.look().left == ("web-1.example.org",)


def test_no_such_service_finds_no_node(server: Server, tmp_path: Path) -> None:
    server.records = ["0 0 0 ."]
    with pytest.raises(DiscoveryError, match=f"{NAME} finds no node"):
        load_fleet(srv_file(tmp_path, server))


def test_each_address_of_a_host_is_a_node(tmp_path: Path) -> None:
    nodes = load_fleet(fleet_file(tmp_path, 'host = "localhost"', "port = 7443"))
    assert str(nodes["127.0.0.1"]) == "127.0.0.1:7443"
    assert {str(one) for name, one in nodes.items() if ":" in name} <= {"[::1]:7443"}
    for host in ("no-such-host.invalid", "a..example"):
        with pytest.raises(DiscoveryError, match=f"{host} cannot be looked up"):
            load_fleet(fleet_file(tmp_path, f'host = "{host}"', "port = 7443"))


@pytest.mark.parametrize(
    "lines",
    [
        (),
        ('service = "a"', 'host = "b"', "port = 1"),
        ('host = "b"',),
        ('service = "a"', "port = 1"),
        ('host = "b"', "port = 65536"),
        ('service = "a"', 'resolver = "127.0.0.1"'),
        ('service = "a"', 'resolver = "localhost:53"'),
        ('service = "a"', 'resolver = ":53"'),
        ('service = "a"', 'resolver = "[::1]:65536"'),
        ('service = "a"', 'resolver = "127.0.0.1:0"'),
        ('service = "a"', 'resolver = "127.0.0.1:5_3"'),
    ],
)
def test_tables_that_cannot_be_meant_are_refused(tmp_path: Path, lines: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError):
        load_fleet(fleet_file(tmp_path, *lines))
