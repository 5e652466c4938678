"""A shop, a time series store, a map, a library and a cache are filled, and answer."""

from __future__ import annotations

import io
import json
import sys
import urllib.request
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from free_port import free_port
from workload_servers import SERVICES, answered, needed, run_service
from workload_servers import serving as serving_soon

from stallward.env.workloads.services.web.map_tiles import PICTURE_NAME, TILE, Tiles
from stallward.env.workloads.services.web.php_shop import Client, fill, php_program
from stallward.env.workloads.services.web.time_series import START_S, samples
from stallward.env.workloads.services.web.web_cache import fill as fill_cache
from stallward.env.workloads.services.web.web_cache import language

serving = partial(serving_soon, patience_s=60.0)


def test_the_shop_gives_articles_and_their_total(programs: Path, tmp_path: Path) -> None:
    needed("lighttpd", "lighttpd")
    for pattern in ("usr/sbin/php-fpm[0-9]*", "usr/lib/php/*/apcu.so"):
        if not any(Path("/").glob(pattern)):
            pytest.skip("PHP is not installed; try `apt-get install php-fpm php-apcu`")
    path = tmp_path / "web.sock"
    argv = (sys.executable, "-m", f"{SERVICES}.web.php_shop", "serve", "--socket", str(path))
    with serving(path, *argv, "--workers", "2", "--shared-mib", "8"):
        client = Client(path)
        fill(client, articles=500)
        lines = answered(programs, tmp_path, "php-gawk", keys="500")
        status, page = client.get("/shop.php?ids=3-499")
        assert client.get("/shop.php?ids=500") == (404, "no article 500\nthat was all\n")
        with pytest.raises(SystemExit, match=r"kept .* of 20000 articles"):
            fill(client, articles=20_000)
        client.close()
    assert lines[:, 3].all()
    assert status == 200
    assert [line.split()[:3] for line in page.splitlines()[:2]] == [
        ["3", "Article", "3"],
        ["499", "Article", "499"],
    ]
    assert page.endswith("\nthat was all\n")


def test_php_is_found_by_its_version_or_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="apt-get install php-fpm php-apcu"):
        php_program(tmp_path)
    (tmp_path / "php-fpm8.9").touch()
    assert php_program(tmp_path) == str(tmp_path / "php-fpm8.9")


def test_the_store_draws_the_graph_of_a_group(programs: Path, tmp_path: Path) -> None:
    needed("prometheus", "prometheus")
    needed("promtool", "prometheus")
    sizes = ("--groups", "3", "--machines", "4", "--count", "480")
    run_service("web.time_series", "prepare", str(tmp_path), *sizes)
    port, path = free_port(), tmp_path / "ready"
    argv = (sys.executable, "-m", f"{SERVICES}.web.time_series", "serve", str(tmp_path))
    with serving(path, *argv, "--ready", str(path), "--port", str(port)):
        address = f"127.0.0.1:{port}"
        lines = answered(programs, tmp_path, "prometheus-forest", keys="3", tcp=address)
        query = f"query=sum(load%7Bg=%220002%22%7D)&time={START_S}"
        with urllib.request.urlopen(f"http://{address}/api/v1/query?{query}") as response:
            answer = json.load(response)
    assert lines[:, 3].all()
    made = samples(groups=3, machines=4, count=480, seed=1)
    values = [float(text.split()[1]) for text in made if 'g="0002"' in text]
    assert len(values) == 4, "the first samples of a group's machines"
    assert float(answer["data"]["result"][0]["value"][1]) == pytest.approx(sum(values))


def test_a_tile_shows_its_piece_of_the_picture(programs: Path, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="try `pip install pillow`")
    run_service("web.map_tiles", "prepare", str(tmp_path), "--columns", "3", "--rows", "2")
    tiles = Tiles(tmp_path)
    assert tiles.count == 6
    picture = np.load(tmp_path / PICTURE_NAME)
    tile = np.asarray(image.open(io.BytesIO(tiles.answer(b"4"))))
    piece = (
        picture[TILE:, TILE : 2 * TILE].reshape(TILE // 2, 2, TILE // 2, 2, 3).mean(axis=(1, 3))
    )
    assert np.abs(tile - piece).mean() < 10
    assert tiles.answer(b"6") == b"error no tile 6\n"
    assert tiles.answer(b"x") == b"error no tile x\n"
    path = tmp_path / "tiles.sock"
    argv = (sys.executable, "-m", f"{SERVICES}.web.map_tiles", "serve", str(tmp_path))
    with serving(path, *argv, "--socket", str(path)):
        assert answered(programs, tmp_path, "tiles-mix", keys="6")[:, 3].all()


def test_the_library_gives_books_and_their_total(programs: Path, tmp_path: Path) -> None:
    needed("ruby", "ruby")
    path = tmp_path / "ruby.sock"
    argv = (sys.executable, "-m", f"{SERVICES}.web.ruby_library", "--socket", str(path))
    with serving(path, *argv, "--books", "500"):
        lines = answered(programs, tmp_path, "ruby-yosys", keys="500")
        client = Client(path)
        status, text = client.get("/3,499")
        assert client.get("/3,500") == (404, '{"books":[],"that_was_all":true}\n')
        client.close()
    assert lines[:, 3].all()
    assert status == 200
    body = json.loads(text)
    assert [(book["id"], len(book["text"])) for book in body["books"]] == [(3, 401), (499, 401)]
    assert body["total"] == sum(book["price"] for book in body["books"])


def test_the_cache_keeps_pages_and_says_so_if_it_cannot(programs: Path, tmp_path: Path) -> None:
    needed("varnishd", "varnish")
    needed("cc", "gcc")
    path = tmp_path / "varnish.sock"
    argv = (sys.executable, "-m", f"{SERVICES}.web.web_cache", "serve", "--socket", str(path))
    with serving(path, *argv, "--page-kib", "8", "--memory-mib", "8"):
        fill_cache(path, pages=300)
        lines = answered(programs, tmp_path, "varnish-mix", keys="300")
        client = Client(path)
        status, page = client.get("/299")
        client.close()
        with pytest.raises(SystemExit, match="has not kept all of 3000 pages"):
            fill_cache(path, pages=3000)
    assert lines[:, 3].all()
    assert (status, page.split()[0], len(page)) == (200, "/299", 5 + 8192)


def test_what_the_cache_serves_comes_from_the_seed() -> None:
    texts = [language(page_kib=1, seed=seed) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]
