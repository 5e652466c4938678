"""A directory, a name server, a full-text search and two tables are filled, and answer."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from free_port import free_port
from workload_servers import SERVICES, answered, needed, run_service
from workload_servers import serving as serving_soon

from stallward.env.scenario.file import load_scenario
from stallward.env.workloads.services.lookup.directory import entries
from stallward.env.workloads.services.lookup.full_text import commands
from stallward.env.workloads.services.lookup.name_server import LAST_TEXT, zone_lines
from stallward.env.workloads.services.mapped_files import read_once

serving = partial(serving_soon, patience_s=60.0)


def load_text(scenario: str, option: str) -> bytes:
    """What an option of a scenario's load stands for, with the bytes that it names."""
    argv = load_scenario(scenario).protected.load.argv
    text = argv[argv.index(option) + 1]
    return text.encode().decode("unicode_escape").encode("latin-1")


def ask(connection: socket.socket, question: bytes, until: bytes) -> bytes:
    connection.sendall(question)
    answer = b""
    while not answer.endswith(until):
        answer += connection.recv(65536)
    return answer


def test_the_directory_finds_people_by_their_ids(programs: Path, tmp_path: Path) -> None:
    needed("slapd", "slapd")
    run_service("lookup.directory", "prepare", str(tmp_path), "--people", "300")
    path = tmp_path / "ldap.sock"
    argv = (sys.executable, "-m", f"{SERVICES}.lookup.directory", "serve", str(tmp_path))
    with serving(path, *argv, "--socket", str(path)):
        lines = answered(programs, tmp_path, "openldap-genome", keys="300")
        question, until = (load_text("openldap-genome", name) for name in ("--request", "--until"))
        for id_ in (b"0000003", b"0000004", b"0000299", b"0000300", b"9999999", b"0000000"):
            question = question.replace(b"%07K", id_, 1)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            answer = ask(client, question, until)
    assert lines[:, 3].all()
    assert [id_ for id_ in range(302) if b"uid=%07d,ou=p,dc=s" % id_ in answer] == [0, 3, 4, 299]


def test_the_name_server_gives_the_text_of_a_name(programs: Path, tmp_path: Path) -> None:
    needed("knotd", "knot")
    run_service("lookup.name_server", "prepare", str(tmp_path), "--names", "300")
    texts = list(zone_lines(names=300, seed=1))
    port, path = free_port(), tmp_path / "knot.sock"
    argv = (sys.executable, "-m", f"{SERVICES}.lookup.name_server", "serve", str(tmp_path))
    with serving(path, *argv, "--socket", str(path), "--port", str(port)):
        address = f"127.0.0.1:{port}"
        lines = answered(programs, tmp_path, "knot-images", keys="300", tcp=address)
        question = load_text("knot-images", "--request").replace(b"%07K", b"0000299")
        with socket.create_connection(("127.0.0.1", port)) as client:
            answer = ask(client, question, LAST_TEXT.encode())
    assert lines[:, 3].all()
    assert answer.endswith(texts[-1].split('"')[1].encode())


def test_documents_with_one_of_two_words_are_found(programs: Path, tmp_path: Path) -> None:
    needed("groonga", "groonga-bin")
    run_service("lookup.full_text", "prepare", str(tmp_path), "--documents", "300")
    documents = [line for line in commands(documents=300, seed=1) if line.startswith('{"text"')]
    wanted = sum("w0003" in line or "w0700" in line for line in documents)
    port, path = free_port(), tmp_path / "ready"
    argv = (sys.executable, "-m", f"{SERVICES}.lookup.full_text", "serve", str(tmp_path))
    with serving(path, *argv, "--ready", str(path), "--port", str(port)):
        address = f"127.0.0.1:{port}"
        lines = answered(programs, tmp_path, "groonga-mix", tcp=address)
        question = load_text("groonga-mix", "--request")
        question = question.replace(b"%04K", b"0003", 1).replace(b"%04K", b"0700", 1)
        with socket.create_connection(("127.0.0.1", port)) as client:
            answer = ask(client, question, load_text("groonga-mix", "--until"))
    assert lines[:, 3].all()
    assert b"<NHITS>%d</NHITS>" % wanted in answer
    assert answer.count(b"<HIT>") == min(10, wanted)


def test_the_database_adds_up_orders(programs: Path, tmp_path: Path) -> None:
    needed("tarantool", "tarantool")
    path = tmp_path / "tarantool.sock"
    argv = (sys.executable, "-m", f"{SERVICES}.lookup.tuples", "--socket", str(path))
    with serving(path, *argv, "--rows", "500"):
        lines = answered(programs, tmp_path, "tarantool-pandoc", keys="500")
        question = load_text("tarantool-pandoc", "--request")
        for id_ in (b"0000000", b"0000007", b"0000007", b"0000100", b"0000499", b"0000008"):
            question = question.replace(b"%07K", id_, 1)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            answer = ask(client, question, load_text("tarantool-pandoc", "--until"))
            client.sendall(question.replace(b"0000499", b"0000500"))
            assert b"no order 0000500" in client.recv(65536)
    assert lines[:, 3].all()
    assert [answer.count(b"customer %d\xcd" % number) + answer.count(b"customer %d\xce" % number)
            for number in (0, 7, 8, 100, 499, 500)] == [1, 2, 1, 1, 1, 0]  # fmt: skip


def test_the_routes_are_copied_and_added_up(programs: Path, tmp_path: Path) -> None:
    needed("escript", "erlang-base")
    path = tmp_path / "erlang.sock"
    argv = (sys.executable, "-m", f"{SERVICES}.lookup.routes", "--socket", str(path))
    with serving(path, *argv, "--routes", "500"):
        lines = answered(programs, tmp_path, "erlang-r", keys="500")
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            first = ask(client, b"3 499\n", b"\n").split()
            second = ask(client, b"499\n", b"\n").split()
            assert ask(client, b"3 500\n", b"\n") == b"error: no such route\n"
    assert lines[:, 3].all()
    assert first[:2] == [b"ok", b"3"]
    assert second == [b"ok", *first[4:]]
    number, hops, text = second[1:]
    assert (number, len(text)) == (b"499", 600)
    assert 12 <= int(hops) <= 12 << 32


@pytest.mark.parametrize(
    "made",
    [
        lambda seed: entries(people=20, seed=seed),
        lambda seed: zone_lines(names=20, seed=seed),
        lambda seed: commands(documents=20, seed=seed),
    ],
)
def test_what_they_hold_comes_from_the_seed(made: Callable[[int], Iterator[str]]) -> None:
    texts = ["".join(made(seed)) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


def test_a_file_is_read_without_its_holes(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.write(bytes(np.ones(8192, dtype=np.uint8)))
        file.truncate(64 << 20)
        file.seek(32 << 20)
        file.write(b"end")
    assert 8192 + 3 <= read_once(path) < 1 << 20
    (tmp_path / "empty").touch()
    assert read_once(tmp_path / "empty") == 0
