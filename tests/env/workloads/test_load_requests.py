"""The load generator speaks protocols that are greeted, binary, or want one length."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest


class GreetedServer:
    """Answers ``\\x00\\x01`` to each request, on connections that were greeted.

    With ``loses_one`` it ends the first connection after an answer and welcomes no further one.
    """

    def __init__(
        self, path: Path, *, greeting: bytes, welcome: bytes, loses_one: bool = False
    ) -> None:
        self.greetings: list[bytes] = []
        self.requests: list[bytes] = []
        self._greeting, self._welcome, self._loses_one = greeting, welcome, loses_one
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()

    def run(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.sendall(self._greeting)
            self.greetings.append(greeting := connection.recv(4096))
            if not (self._loses_one and self.greetings.count(greeting) > 1):
                connection.sendall(self._welcome)
            while request := connection.recv(4096):
                self.requests.append(request)
                connection.sendall(b"\x00\x01")
                if self._loses_one and greeting.endswith(b"0"):
                    return

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@contextmanager
def greeted(
    path: Path, *, greeting: bytes, welcome: bytes, loses_one: bool = False
) -> Iterator[GreetedServer]:
    server = GreetedServer(path, greeting=greeting, welcome=welcome, loses_one=loses_one)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join(5)


def load(programs: Path, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    argv = [str(programs / "load"), "--socket", str(folder / "s"), "--rate", "200"]
    argv += ["--keys", "1000", "--seconds", "0.4", "--out", str(folder / "lines"), *options]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=20)


BINARY = ("--request", r"\x00%07K|%K", "--until", r"\x00\x01", "--ok-prefix", r"\x00")


def test_each_connection_is_greeted_before_its_first_request(
    programs: Path, tmp_path: Path
) -> None:
    # The welcome's end also occurs within it, and in part at its start.
    welcome = b"\x02\x02\x00welcome\x02\x00\x02\x00\x05"
    with greeted(tmp_path / "s", greeting=b"hello\x00\x05", welcome=welcome) as server:
        options = ("--hello", r"i am \x01%C", "--hello-until", r"\x02\x00\x05")
        done = load(programs, tmp_path, *BINARY, *options, "--connections", "3")
    assert done.returncode == 0, done.stderr
    assert sorted(server.greetings) == [b"i am \x01%d" % number for number in range(3)]
    answered = np.loadtxt(tmp_path / "lines")
    assert len(answered) > 30
    assert answered[:-3, 3].all()


def test_a_connection_that_is_not_welcomed_again_does_not_hold_up_the_others(
    programs: Path, tmp_path: Path
) -> None:
    with greeted(tmp_path / "s", greeting=b"", welcome=b"ok", loses_one=True) as server:
        options = ("--hello", "i am %C", "--hello-until", "ok", "--connections", "2")
        done = load(programs, tmp_path, *BINARY, *options)
    assert done.returncode == 0, done.stderr
    assert sorted(server.greetings) == [b"i am 0", b"i am 0", b"i am 1"]
    scheduled_s, _, end_s, ok = np.loadtxt(tmp_path / "lines", unpack=True)
    assert (ok == 0).sum() <= 3, "at the end of a connection, and two at that of the load"
    assert len(ok) > 30
    assert (end_s - scheduled_s).max() < 2, "a welcome is waited for, for 5 s"


def test_keys_with_zeros_give_requests_of_one_length(programs: Path, tmp_path: Path) -> None:
    with greeted(tmp_path / "s", greeting=b"", welcome=b"ok") as server:
        done = load(programs, tmp_path, *BINARY, "--hello", "x", "--hello-until", "ok")
    assert done.returncode == 0, done.stderr
    keys = [request[1:].split(b"|") for request in server.requests]
    assert {request[:1] for request in server.requests} == {b"\x00"}
    assert {len(wide) for wide, _ in keys} == {7}
    assert len({len(narrow) for _, narrow in keys}) > 1
    assert all(0 <= int(number) < 1000 for pair in keys for number in pair)


def test_a_server_without_a_welcome_is_given_up(programs: Path, tmp_path: Path) -> None:
    with greeted(tmp_path / "s", greeting=b"no", welcome=b""):
        options = ("--hello", "x", "--hello-until", "ok", "--wait", "0.1", "--connections", "1")
        done = load(programs, tmp_path, *BINARY, *options)
    assert done.returncode == 2
    assert "nobody accepts connections" in done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--request", r"\x0"), "hexadecimal"),
        (("--request", r"a\xAB"), "hexadecimal"),
        (("--request", "x", "--hello", "%K", "--hello-until", "ok"), "--hello takes no %K"),
        (("--request", "x", "--hello", "a"), "--hello-until"),
        (("--request", "x", "--hello-until", "a"), "--hello-until"),
        (("--request", "x" * 5000), "4096 bytes"),
        (("--request", "%K%04K" * 9), "16 times"),
    ],
)
def test_requests_with_mistakes_are_refused(
    programs: Path, tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    done = load(programs, tmp_path, *options)
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr
