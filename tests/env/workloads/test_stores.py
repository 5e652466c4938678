"""The ordered and the transactional store answer with several threads at once."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from workload_servers import serving

from stallward.env.workloads.services.stores.build import build_store

HEADERS = {"ordered": "/usr/include/lmdb.h", "transactional": "/usr/include/rocksdb/c.h"}
REQUESTS = {"ordered": "set %K get %K\n", "transactional": "tx %K\n"}
KEYS = 500


def built(store: str, folder: Path) -> Path:
    if not Path(HEADERS[store]).exists():
        pytest.skip(f"{HEADERS[store]} is not installed")
    program = folder / store
    build_store(store, program)
    return program


@pytest.fixture
def ordered(tmp_path: Path) -> Iterator[Path]:
    """The socket of an ordered store with two workers."""
    path = tmp_path / "server.sock"
    program = built("ordered", tmp_path)
    with serving(path, str(program), str(path), str(tmp_path), str(KEYS), "2"):
        yield path


def ask(path: Path, request: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(5.0)
        client.connect(str(path))
        client.sendall(request)
        return client.recv(100)


@pytest.mark.parametrize("store", list(HEADERS))
def test_every_request_of_many_connections_is_answered(
    store: str, programs: Path, tmp_path: Path
) -> None:
    path, lines = tmp_path / "server.sock", tmp_path / "lines"
    program = built(store, tmp_path)
    with serving(path, str(program), str(path), str(tmp_path), str(KEYS), "3"):
        options = {
            "--socket": str(path),
            "--request": REQUESTS[store],
            "--ok-prefix": "ok",
            "--keys": str(KEYS),
            "--rate": "300",
            "--connections": "8",
            "--seed": "1",
            "--out": str(lines),
            "--seconds": "0.5",
        }
        words = [word for option in options.items() for word in option]
        subprocess.run([str(programs / "load"), *words], check=True, timeout=20)
    log = np.loadtxt(lines)
    answered = log[: np.flatnonzero(log[:, 3]).max(initial=-1) + 1]
    assert len(answered) > 50
    assert answered[:, 3].all()


def test_keys_are_set_and_found_and_others_are_not(ordered: Path) -> None:
    assert ask(ordered, b"set 3\n") == b"ok\n"
    assert ask(ordered, b"set 3 get 3 get 499\n") == b"ok\n"
    assert ask(ordered, b"get 500\n") == b"error\n"
    assert ask(ordered, b"put 3\n") == b"error\n"
    assert ask(ordered, b"\n") == b"error\n"


def test_a_request_in_pieces_is_one_request(ordered: Path) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(5.0)
        client.connect(str(ordered))
        for piece in (b"set 1", b"2 ge", b"t 12", b"\n"):
            client.sendall(piece)
        assert client.recv(100) == b"ok\n"
        client.sendall(b"get 12\n")
        assert client.recv(100) == b"ok\n"


def test_clients_that_leave_or_ask_too_much_harm_nobody(ordered: Path) -> None:
    for request in (b"set 1 " * 60 + b"\n", b"x" * 2000, b"half a line", b""):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(ordered))
            client.sendall(request)
    assert ask(ordered, b"get 1\n") == b"ok\n"


def test_a_store_that_cannot_be_compiled_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\necho 'lmdb.h: No such file or directory' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(SystemExit, match=r"lmdb\.h: No such file"):
        build_store("ordered", tmp_path / "program")


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "stallward.env.workloads.services.stores.build", "other"]
    finished = subprocess.run([*argv, str(tmp_path / "x")], capture_output=True, check=False)
    assert finished.returncode == 2
    assert b"ordered" in finished.stderr
