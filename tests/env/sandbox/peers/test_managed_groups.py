"""What stands in for systemd answers systemd-oomd as systemd does, over a real socket."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from stallward.actuator.kernel.cgroups import Cgroup, Hierarchy
from stallward.env.errors import WorkloadError
from stallward.env.sandbox.peers.managed_groups import ManagedGroups, service_argv, spare

CALL = b'{"method":"io.systemd.ManagedOOM.SubscribeManagedOOMCGroups","more":true}'
"""As systemd-oomd 252 writes it."""


def group(folder: Path, name: str = "stallward/1") -> Cgroup:
    return Hierarchy(kind="v2", memory_root=folder, unified_root=folder).group(name)


def connect(path: Path) -> socket.socket:
    caller = socket.socket(socket.AF_UNIX)
    caller.settimeout(10)
    caller.connect(str(path))
    return caller


def answer(caller: socket.socket) -> dict[str, Any]:
    got = b""
    while not got.endswith(b"\0"):
        part = caller.recv(7)
        assert part, "it hung up"
        got += part
    message: dict[str, Any] = json.loads(got[:-1])
    return message


def test_a_subscriber_hears_of_the_zone_once_and_stays_connected(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with ManagedGroups(path, "stallward/1"):
        with connect(path) as caller:
            caller.sendall(CALL[:20])
            caller.sendall(CALL[20:] + b"\0")
            heard = answer(caller)
            caller.settimeout(0.1)
            with pytest.raises(TimeoutError):
                caller.recv(1)
        with connect(path) as again:  # as it does when it was cut off
            again.sendall(CALL + b"\0")
            assert answer(again) == heard
    assert heard == {
        "parameters": {
            "cgroups": [
                {
                    "mode": "kill",
                    "path": "/stallward/1",
                    "property": "ManagedOOMMemoryPressure",
                    "limit": 2147483648,
                },
                {"mode": "kill", "path": "/stallward/1", "property": "ManagedOOMSwap"},
            ]
        },
        "continues": True,
    }
    # systemd-oomd makes hundredths of a per cent of it.
    limit = heard["parameters"]["cgroups"][0]["limit"]
    assert limit * 10_000 // ((1 << 32) - 1) == 5_000


def test_as_a_program_it_answers_until_it_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with subprocess.Popen(service_argv(sys.executable, path, group(tmp_path))) as program:
        try:
            while not path.exists():
                assert program.poll() is None
                time.sleep(0.01)
            with connect(path) as caller:
                caller.sendall(CALL + b"\0")
                assert len(answer(caller)["parameters"]["cgroups"]) == 2
        finally:
            program.kill()


@pytest.mark.parametrize("call", [b"", b"{", b"[1]", b'{"method":"io.systemd.Else"}'])
def test_another_call_is_refused(tmp_path: Path, call: bytes) -> None:
    path = tmp_path / "socket"
    with ManagedGroups(path, "stallward/1"), connect(path) as caller:
        caller.sendall(call + b"\0")
        assert answer(caller)["error"] == "org.varlink.service.MethodNotFound"


def test_it_ends_while_callers_say_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    before = threading.active_count()
    with ManagedGroups(path, "stallward/1") as managed, connect(path) as silent:
        with connect(path):
            pass
        managed.close()
        assert silent.recv(1) == b""
    assert threading.active_count() == before
    assert list(tmp_path.iterdir()) == []


def test_a_socket_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"Cannot listen at .*none/socket for systemd-oomd"):
        ManagedGroups(tmp_path / "none" / "socket", "stallward/1")


def test_a_spared_group_has_the_mark_of_systemd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marked: list[tuple[object, ...]] = []
    monkeypatch.setattr(os, "setxattr", lambda *words: marked.append(words))
    spare(group(tmp_path, "stallward/1/app"))
    assert marked == [(tmp_path / "stallward/1/app", "user.oomd_omit", b"1")]


def test_a_group_that_cannot_be_spared_says_why(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="Cannot spare the group gone from systemd-oomd"):
        spare(group(tmp_path, "gone"))
