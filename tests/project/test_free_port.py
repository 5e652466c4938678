"""Two tests are never told the same port."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import free_port as module
import pytest
from free_port import free_port

TAKES_ALL = """
import contextlib, sys
import free_port
free_port._PORTS = range(20_000, 20_004)
with contextlib.suppress(AssertionError):
    while True:
        print(free_port.free_port())
"""


def test_a_port_is_given_once_in_all_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PORTS", range(20_000, 20_004))
    mine = free_port()
    done = subprocess.run(
        [sys.executable, "-c", TAKES_ALL],
        cwd=Path(module.__file__).parent,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    theirs = {int(line) for line in done.stdout.split()}
    assert theirs <= set(range(20_000, 20_004)) - {mine}
    with socket.create_server(("127.0.0.1", mine)):
        pass


def test_a_port_on_which_something_listens_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setattr(module, "_PORTS", range(port, port + 1))
        with pytest.raises(AssertionError, match="no free port"):
            free_port()
