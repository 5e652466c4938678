"""The SQLite server and the Python web service answer what they were prepared for."""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import AbstractContextManager, closing
from pathlib import Path

import numpy as np
import pytest
from workload_servers import serving

from stallward.env.scenario.file import load_scenario
from stallward.env.workloads.services import python_web, sqlite_server
from stallward.env.workloads.services.python_web import LAST_LINE, Articles
from stallward.env.workloads.services.sqlite_server import Documents


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    sqlite_server.prepare(tmp_path, documents=50, document_bytes=200, seed=1)
    return tmp_path


@pytest.fixture
def articles(tmp_path: Path) -> Path:
    python_web.prepare(tmp_path, articles=100, dimensions=8, texts=5, kib=2)
    return tmp_path


def serving_data(module: str, folder: Path, path: Path) -> AbstractContextManager[None]:
    argv = [sys.executable, "-m", f"stallward.env.workloads.services.{module}", "serve"]
    return serving(path, *argv, str(folder), "--socket", str(path))


def load(programs: Path, folder: Path, scenario: str, keys: int) -> np.ndarray:
    """Send the requests of a scenario for half a second; return the lines."""
    lines = folder / "lines"
    argv = load_scenario(scenario).protected.load.argv[1:]
    options = [word.replace("{run}", str(folder)).replace("{seed}", "1") for word in argv]
    options[options.index("--keys") + 1] = str(keys)
    options[options.index("--rate") + 1] = "150"
    options[options.index("--out") + 1] = str(lines)
    command = [str(programs / "load"), *options, "--seconds", "0.5"]
    subprocess.run(command, check=True, timeout=20)
    return np.asarray(np.loadtxt(lines))


def test_documents_come_from_the_seed_and_are_summed(documents: Path, tmp_path: Path) -> None:
    with closing(Documents(documents, cache_mib=1)) as store:
        assert store.warm() == 50
        assert store.answer(b"0 49 7") == b"ok 600\n"
        assert store.answer(b"3 50 4") == b"error no document 50\n"
    again = tmp_path / "again"
    sqlite_server.prepare(again, documents=50, document_bytes=200, seed=1)
    name = "documents.sqlite"
    assert (again / name).read_bytes() == (documents / name).read_bytes()


def test_the_sqlite_server_answers_the_load(programs: Path, documents: Path) -> None:
    with serving_data("sqlite_server", documents, documents / "sqlite.sock"):
        answered = load(programs, documents, "sqlite-etl", keys=50)
    assert len(answered) > 30
    assert answered[:-8, 3].all()


def test_a_page_has_each_article_and_ends_with_the_last_line(articles: Path) -> None:
    service = Articles(articles)
    service.warm()
    page = service.page("/3/99")
    lines = page.decode().splitlines()
    titles = [line for line in lines if ": see " in line]
    assert titles[0].startswith("Article 3, of many: see Article ")
    assert titles[1].startswith("Article 99, of many: see Article ")
    assert "see Article 3," not in titles[0]
    assert page.endswith(LAST_LINE)
    assert page.count(LAST_LINE.strip()) == 1
    for path in ("/100", "/x", "/-1", ""):
        with pytest.raises(LookupError):
            service.page(path)


def test_the_web_service_answers_the_load_and_knows_what_is_missing(
    programs: Path, articles: Path
) -> None:
    path = articles / "web.sock"
    with serving_data("python_web", articles, path):
        answered = load(programs, articles, "python-web-git", keys=100)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            client.sendall(b"GET /5/100 HTTP/1.1\r\nHost: a\r\n\r\n")
            reply = b""
            while not reply.endswith(LAST_LINE):
                reply += client.recv(4096)
    assert reply.startswith(b"HTTP/1.1 404")
    assert len(answered) > 30
    assert answered[:-8, 3].all()


@pytest.mark.parametrize("module", ["sqlite_server", "python_web"])
def test_serving_without_a_socket_is_refused(module: str, tmp_path: Path) -> None:
    argv = [sys.executable, "-m", f"stallward.env.workloads.services.{module}", "serve"]
    done = subprocess.run(
        [*argv, str(tmp_path)], capture_output=True, text=True, check=False, timeout=20
    )
    assert (done.returncode, "--socket" in done.stderr) == (2, True)
