"""The servers of the held-out scenarios answer, and what fills them fills them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from free_port import free_port
from workload_servers import SERVICES, answered, needed, run_service
from workload_servers import serving as serving_soon

from stallward.env.scenario.file import load_scenario
from stallward.env.workloads.services.etcd_fill import Gateway, key_text
from stallward.env.workloads.services.etcd_fill import fill as fill_etcd
from stallward.env.workloads.services.mapped_files import read_once
from stallward.env.workloads.services.mariadb import serve_command as mariadb_command
from stallward.env.workloads.services.mariadb import table_script
from stallward.env.workloads.services.nats_fill import LAST_TEXT, Client
from stallward.env.workloads.services.nats_fill import fill as fill_nats
from stallward.env.workloads.services.rocksdb_server import Store
from stallward.env.workloads.services.vector_search import VectorSearch, VectorSource

serving = partial(serving_soon, patience_s=60.0)


def test_the_catalogue_gives_articles_and_their_total(programs: Path, tmp_path: Path) -> None:
    needed("node", "nodejs")
    path = tmp_path / "node.sock"
    argv = (sys.executable, "-m", f"{SERVICES}.node_catalogue", "--socket", str(path))
    with serving(path, *argv, "--articles", "500"):
        lines = answered(programs, tmp_path, "node-spark", keys="500")
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            client.sendall(
                b"GET /3,4 HTTP/1.1\r\nHost: a\r\n\r\nGET /500 HTTP/1.1\r\nHost: a\r\n\r\n"
            )
            text = b""
            while text.count(b"that_was_all") < 2:
                text += client.recv(65536)
    assert lines[:, 3].all()
    first, second = text.split(b"HTTP/1.1 ")[1:]
    assert (first[:3], second[:3]) == (b"200", b"404")
    body = json.loads(first.partition(b"\r\n\r\n")[2])
    assert [article["number"] for article in body["articles"]] == [3, 4]
    assert body["total"] == pytest.approx(sum(article["price"] for article in body["articles"]))


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_the_ledger_books_and_gives_balances(programs: Path, tmp_path: Path) -> None:
    needed("javac", "default-jdk-headless")
    path = tmp_path / "ledger.sock"
    run_service("java_ledger", "prepare", str(tmp_path))
    argv = (sys.executable, "-m", f"{SERVICES}.java_ledger", "serve", str(tmp_path))
    with serving(path, *argv, "--socket", str(path), "--accounts", "500", "--heap-mib", "96"):
        lines = answered(programs, tmp_path, "jvm-lightgbm", keys="500")
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            client.sendall(b"GET /500 HTTP/1.1\r\n\r\n")
            assert client.recv(4096).startswith(b"HTTP/1.1 404")
    assert lines[:, 3].all()


def test_vectors_are_found_near_themselves(programs: Path, tmp_path: Path) -> None:
    pytest.importorskip("usearch", reason="try `pip install usearch`")
    source = VectorSource(1)
    np.testing.assert_array_equal(source.batch(0, 5), VectorSource(1).batch(0, 5))
    assert not np.array_equal(source.batch(0, 5), VectorSource(2).batch(0, 5))
    run_service("vector_search", "prepare", str(tmp_path), "--vectors", "500")
    search = VectorSearch(tmp_path)
    found = [search.answer(b"%d" % number).split() for number in range(20)]
    assert {len(words) for words in found} == {11}
    assert sum(words[1] == b"%d" % number for number, words in enumerate(found)) >= 18
    assert search.answer(b"x") == b"error not a number\n"
    path = tmp_path / "vectors.sock"
    argv = (sys.executable, "-m", f"{SERVICES}.vector_search", "serve", str(tmp_path))
    with serving(path, *argv, "--socket", str(path)):
        assert answered(programs, tmp_path, "vectors-mix", keys="500")[:, 3].all()


def test_rocksdb_gives_the_length_of_values(programs: Path, tmp_path: Path) -> None:
    pytest.importorskip("rocksdict", reason="try `pip install rocksdict`")
    run_service("rocksdb_server", "prepare", str(tmp_path), "--keys", "400")
    store = Store(tmp_path, cache_mib=1)
    assert store.answer(b"0 399") == b"ok 2000\n"
    assert store.answer(b"5 400") == b"error no key 400\n"
    assert sum(map(read_once, (tmp_path / "rocksdb").glob("*.sst"))) > 400_000
    path = tmp_path / "rocksdb.sock"
    argv = (sys.executable, "-m", f"{SERVICES}.rocksdb_server", "serve", str(tmp_path))
    with serving(path, *argv, "--socket", str(path)):
        assert answered(programs, tmp_path, "rocksdb-spark", keys="400")[:, 3].all()


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_mariadb_is_filled_and_sums_articles(programs: Path, tmp_path: Path) -> None:
    client = needed("mariadb", "mariadb-client")
    needed("mariadbd", "mariadb-server")
    run_service("mariadb", "prepare", str(tmp_path), "--rows", "2000")
    path = tmp_path / "mariadb.sock"
    argv = (sys.executable, "-m", f"{SERVICES}.mariadb", "serve", str(tmp_path))
    with serving(path, *argv, "--socket", str(path), "--buffers-mib", "16"):
        lines = answered(programs, tmp_path, "mariadb-build", keys="2000")
        ask = "SELECT COUNT(*), MIN(LENGTH(text)), COUNT(DISTINCT text) FROM articles"
        done = subprocess.run(
            [client, "--no-defaults", f"--socket={path}", "-N", "shop", "-e", ask],
            capture_output=True,
            text=True,
            check=True,
        )
    assert lines[:, 3].all()
    assert done.stdout.split() == ["2000", "800", "2000"]


def test_mariadb_reads_no_configuration_and_listens_on_its_socket_only(tmp_path: Path) -> None:
    needed("mariadbd", "mariadb-server")
    command = mariadb_command(tmp_path, tmp_path / "s", buffers_mib=64)
    assert command[1] == "--no-defaults"
    assert {"--skip-networking", "--innodb-buffer-pool-size=64M"} <= set(command)


def test_the_table_of_mariadb_is_filled_in_steps() -> None:
    script = table_script(rows=250_000, seed=3)
    steps = [line for line in script.splitlines() if line.startswith("FROM seq_")]
    assert steps == [
        "FROM seq_0_to_99999;",
        "FROM seq_100000_to_199999;",
        "FROM seq_200000_to_249999;",
    ]


def test_nats_keeps_messages_and_gives_each_by_its_number(programs: Path, tmp_path: Path) -> None:
    server = needed("nats-server", "nats-server")
    port = free_port()
    argv = (server, "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(tmp_path / "store"))
    with serving(None, *argv):
        client = Client(("127.0.0.1", port))
        assert fill_nats(client, messages=300, message_bytes=1000, seed=1) == 300
        client.close()
        lines = answered(programs, tmp_path, "nats-ffmpeg", keys="300", tcp=f"127.0.0.1:{port}")
    assert lines[:, 3].all()
    assert LAST_TEXT.decode() in " ".join(load_scenario("nats-ffmpeg").protected.load.argv)


def test_a_broker_that_is_too_small_fails_the_filling(tmp_path: Path) -> None:
    server = needed("nats-server", "nats-server")
    port = free_port()
    settings = tmp_path / "nats.conf"
    settings.write_text(f'jetstream {{ max_memory_store: 100K, store_dir: "{tmp_path}/store" }}\n')
    argv = (server, "-a", "127.0.0.1", "-p", str(port), "-c", str(settings))
    fill = (sys.executable, "-m", f"{SERVICES}.nats_fill", "--tcp", f"127.0.0.1:{port}")
    with serving(None, *argv):
        done = subprocess.run(
            [*fill, "--messages", "300", "--message-bytes", "1000"],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert done.returncode == 1
    assert "NATS refuses" in done.stderr


@pytest.mark.slow
@pytest.mark.reaches("docs/", "models/", "recordings/")
def test_etcd_keeps_values_and_takes_transactions(programs: Path, tmp_path: Path) -> None:
    server = needed("etcd", "etcd-server")
    ports = free_port(), free_port()
    client, peer = (f"http://127.0.0.1:{port}" for port in ports)
    argv = [server, "--data-dir", str(tmp_path / "etcd"), "--log-level", "error"]
    argv += ["--logger", "zap", "--listen-client-urls", client, "--advertise-client-urls", client]
    argv += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
    argv += ["--initial-cluster", f"default={peer}"]
    address = client.removeprefix("http://")
    with serving(None, *argv):
        gateway = Gateway(address)
        gateway.wait()
        assert fill_etcd(gateway, keys=250, value_bytes=400, seed=1) == 250
        found = gateway.call("range", {"key": key_text(7)})
        assert found["kvs"][0]["key"] == "00000007"
        gateway.close()
        lines = answered(programs, tmp_path, "etcd-mix", keys="250", tcp=address)
    assert lines[:, 3].all()


def test_a_server_that_does_not_answer_is_named() -> None:
    with pytest.raises(SystemExit, match="NATS does not answer"):
        Client(("127.0.0.1", free_port()), wait_s=0.1)
    with pytest.raises(SystemExit, match="etcd does not answer"):
        Gateway(f"127.0.0.1:{free_port()}").wait(0.1)


@pytest.mark.parametrize(
    ("module", "options", "message"),
    [
        ("node_catalogue", ("--socket", "s"), "apt-get install nodejs"),
        ("java_ledger", ("prepare", "x"), "apt-get install default-jdk-headless"),
    ],
)
def test_what_is_not_installed_is_named(
    tmp_path: Path, module: str, options: tuple[str, ...], message: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", f"{SERVICES}.{module}", *options],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": str(tmp_path)},
    )
    assert (done.returncode, message in done.stderr) == (1, True), done.stderr
