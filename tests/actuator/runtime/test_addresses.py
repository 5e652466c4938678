"""A socket is the very file that its path names, for the service and for its clients."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from stallward.actuator.client import ActuatorClient
from stallward.actuator.errors import ConfigError, RequestError
from stallward.actuator.ipc.options import Modules, ServiceOptions
from stallward.actuator.runtime.addresses import (
    MAX_SOCKET_PATH_BYTES,
    grpc_target,
    parse_address,
)
from stallward.actuator.runtime.process_start import command_line
from stallward.actuator.runtime.temporary_folders import temporary_folder

NAMES = (
    "plain.sock",
    "with space",
    "with%20escape",
    "100%",
    "%",
    "%zz",
    "query?a=b",
    "fragment#1",
    "a:b@c;d&e=g+h!$'()*[]",
    "back\\slash",
    'quote"',
    "größe-日本",
    os.fsdecode(b"not-utf8-\xff"),
    "new\nline",
    "~tilde",
)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name, as a socket's path must be short."""
    with temporary_folder("address") as made:
        yield made


def meets(path: Path, client_path: Path | None = None) -> bool:
    """Whether a client reaches a server at ``path``, which must be the socket then."""
    server = grpc.server(ThreadPoolExecutor(1))
    echo: Any = grpc.unary_unary_rpc_method_handler(lambda request, _context: request)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t", {"echo": echo}),))
    assert server.add_insecure_port(grpc_target(path))
    server.start()
    try:
        assert path.is_socket()
        with grpc.insecure_channel(grpc_target(client_path or path)) as channel:
            call: Any = channel.unary_unary("/t/echo")
            return bool(call(b"hello", timeout=10) == b"hello")
    finally:
        server.stop(None).wait()


@pytest.mark.parametrize("name", NAMES)
def test_server_and_client_meet_at_any_path(folder: Path, name: str) -> None:
    assert meets(folder / name)
    assert [entry.name for entry in folder.iterdir()] in ([], [name])


def test_server_and_client_meet_at_a_relative_path(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    assert meets(Path("a%20b?c"), folder / "a%20b?c")
    assert meets(folder / "d#e", Path("d#e"))


def test_two_slashes_at_the_start_are_no_host(folder: Path) -> None:
    assert meets(Path(f"/{folder}/s"), folder / "s")
    assert meets(folder / "t", Path(f"/{folder}/t"))


def test_the_longest_path_is_served_and_a_longer_one_is_refused(folder: Path) -> None:
    room = MAX_SOCKET_PATH_BYTES - len(os.fsencode(folder)) - 1
    for longest in ("s" * room, "%" * room, "ü" * (room // 2)):
        assert meets(folder / longest)
    for longer in (folder / ("s" * (room + 1)), folder / ("ü" * (room // 2 + 1))):
        with pytest.raises(ConfigError, match="bytes long, at most 107 fit") as caught:
            ActuatorClient(longer)
        assert "shorter path" in caught.value.next_step
        with pytest.raises(ConfigError, match="at most 107 fit"):
            parse_address(str(longer), "config.service.socket")


def test_the_service_itself_and_the_client_meet_at_a_path_full_of_marks(folder: Path) -> None:
    path = folder / "a b%20c?d#e%ü"
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    life, life_end = os.pipe()
    fds = (theirs.fileno(), life)
    options = ServiceOptions(
        socket=path, command_fd=fds[0], life_fd=life, silence_s=1.0, slo_ms=60.0
    )
    command = command_line(Modules().service, options)
    with ours, theirs, subprocess.Popen(command, pass_fds=fds) as service:
        try:
            deadline_s = time.monotonic() + 60
            while not path.is_socket() and service.poll() is None:
                assert time.monotonic() < deadline_s
                time.sleep(0.05)
            with (
                ActuatorClient(path) as client,
                pytest.raises(RequestError, match="Latencies come from 'nowhere' here"),
            ):
                client.report(())
        finally:
            os.close(life_end)
            service.wait(30)
            os.close(life)
    assert service.returncode == 0
    left = {entry.name for entry in folder.iterdir()}
    # Its lock lies elsewhere, unless this user has no folder for locks.
    assert left <= ({f"{path.name}.lock"} if os.geteuid() else set())


def test_the_address_of_a_path_is_a_uri_without_marks() -> None:
    assert grpc_target(Path("/run/a b%20?#ü")) == "unix:/run/a%20b%2520%3F%23%C3%BC"
    with pytest.raises(ConfigError, match="gRPC takes no comma"):
        grpc_target(Path("/run/a,b"))
    with pytest.raises(ConfigError, match="NUL"):
        grpc_target(Path("/run/a\0b"))
