"""``stallward ctl load`` tells a file here from what only the node knows."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from stallward.actuator.cli import policies
from stallward.actuator.client.status import PolicyInfo
from stallward.evaluation.cli import main


class Client:
    """Takes what is to be loaded."""

    def __init__(self) -> None:
        self.loaded: list[str] = []

    def load(self, policy: str) -> PolicyInfo:
        self.loaded.append(policy)
        return PolicyInfo(name=policy, path=policy, schema_hash="", sha256="0" * 64)


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Client:
    made = Client()

    @contextlib.contextmanager
    def connect(_socket: str) -> Iterator[Client]:
        yield made

    monkeypatch.setattr(policies, "connect", connect)
    monkeypatch.chdir(tmp_path)
    return made


@pytest.mark.parametrize(
    "name",
    [
        "november",
        "controller:partition",
        "controller:partition:" + ",".join(f"margin_share=0.{number:04}" for number in range(20)),
        "x" * 300,
    ],
)
def test_a_name_is_for_the_node_whatever_folder_is_called_so(client: Client, name: str) -> None:
    if len(name) < 200:
        Path(name).mkdir()
    assert main(["ctl", "load", name]) == 0
    assert client.loaded == [name]


def test_a_file_is_named_by_its_whole_path(client: Client, tmp_path: Path) -> None:
    (tmp_path / "new.onnx").touch()
    assert main(["ctl", "load", "new.onnx"]) == 0
    assert client.loaded == [str(tmp_path / "new.onnx")]
