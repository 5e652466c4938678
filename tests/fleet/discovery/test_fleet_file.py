"""The file that names the nodes of a fleet."""

from __future__ import annotations

from pathlib import Path

import pytest

from stallward.actuator.client import RemoteDaemon
from stallward.actuator.errors import ConfigError
from stallward.fleet import load_fleet


def test_nodes_are_sockets_or_other_machines_with_certificates(tmp_path: Path) -> None:
    file = tmp_path / "nodes.toml"
    file.write_text(
        'tls = "tls"\n[nodes]\nweb-1 = "web-1.example.org:7443"\nhere = "/run/stallward/s.sock"\n'
    )
    assert load_fleet(file) == {
        "web-1": RemoteDaemon.with_folder("web-1.example.org:7443", tmp_path / "tls"),
        "here": Path("/run/stallward/s.sock"),
    }


def test_certificates_may_be_named_by_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "nodes.toml"
    file.write_text('[nodes]\nweb-1 = "10.0.0.1:7443"\n')
    monkeypatch.setenv("STALLWARD_TLS", str(tmp_path / "mine"))
    daemon = load_fleet(file)["web-1"]
    assert isinstance(daemon, RemoteDaemon)
    assert daemon.key.parent == tmp_path / "mine"
    monkeypatch.delenv("STALLWARD_TLS")
    with pytest.raises(ConfigError, match="asks for a certificate"):
        load_fleet(file)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[nodes]\n", "names no node"),
        ('[nodes]\na = "/run/s"\nb = "/run/s"\n', "a and b are both /run/s"),
        ('[node]\na = "/run/s"\n', "unknown key 'node'"),
        ("[nodes]\na = 7\n", "nodes.a is 7"),
        ("nodes", "cannot be read"),
    ],
)
def test_mistakes_are_said(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "nodes.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_fleet(file)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nodes\.toml cannot be read"):
        load_fleet(tmp_path / "nodes.toml")
