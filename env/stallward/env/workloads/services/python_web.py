"""A web service in Python: it ranks articles by a model in memory and sends their files.

``prepare DIR`` writes the model and the articles. ``serve DIR --socket PATH`` answers
``GET /NUMBER/NUMBER/...`` by a page: the articles with these numbers, each with the one of its
neighbourhood that is most alike. The model (an embedding of each article) and the titles are
objects of the process, which can be swapped out. The texts of the articles are files.
"""

from __future__ import annotations

import socketserver
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Final

import numpy as np

from stallward.env.workloads.command_line import run_program

_MODEL: Final = "model.npy"
_TEXTS: Final = "texts"
_NEIGHBOURS: Final = 64
LAST_LINE: Final = b"end of the page\n"
"""The end of every page, by which a client knows that it has come."""


def prepare(
    folder: Path,
    /,
    *,
    articles: int = 200_000,
    dimensions: int = 192,
    texts: int = 6_000,
    kib: int = 16,
) -> None:
    """Write the model and the texts, which several articles share."""
    (folder / _TEXTS).mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(articles)
    np.save(folder / _MODEL, rng.standard_normal((articles, dimensions), dtype=np.float32))
    for number in range(texts):
        (folder / _TEXTS / str(number)).write_bytes(rng.bytes(kib * 512).hex().encode())


class Articles:
    """What the service keeps in memory.

    Args:
        folder: A folder that was prepared.
    """

    def __init__(self, folder: Path) -> None:
        self._texts = folder / _TEXTS
        self._model = np.load(folder / _MODEL)
        self._titles = [f"Article {number}, of many" for number in range(len(self._model))]
        self._text_count = sum(1 for _ in self._texts.iterdir())

    def warm(self) -> None:
        """Read every text once."""
        for number in range(self._text_count):
            self._text(number)

    def page(self, path: str) -> bytes:
        """Make the page of a path.

        Raises:
            LookupError: If there is no such article.
        """
        parts = []
        for word in path.strip("/").split("/"):
            number = int(word) if word.isdecimal() else len(self._titles)
            row = self._model[number]
            first = min(number, len(self._model) - _NEIGHBOURS)
            scores = self._model[first : first + _NEIGHBOURS] @ row
            scores[number - first] = -np.inf
            alike = first + int(np.argmax(scores))
            parts.append(f"{self._titles[number]}: see {self._titles[alike]}\n".encode())
            parts += [self._text(number % self._text_count), b"\n"]
        return b"".join((*parts, LAST_LINE))

    def _text(self, number: int) -> bytes:
        return (self._texts / str(number)).read_bytes()


class Handler(BaseHTTPRequestHandler):
    """Answers the requests of one connection, in a thread of its own."""

    protocol_version = "HTTP/1.1"
    articles: Articles

    def do_GET(self) -> None:
        """Send a page."""
        try:
            status, page = HTTPStatus.OK, self.articles.page(self.path)
        except LookupError:
            status, page = HTTPStatus.NOT_FOUND, b"There is no such article.\n" + LAST_LINE
        self.send_response(status)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def address_string(self) -> str:
        """Return the name of the client, which has no address on a Unix socket."""
        return "client"

    def log_message(self, *_: object) -> None:
        """Log nothing: the load generator does."""


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """A server on a Unix socket."""

    daemon_threads = True
    request_queue_size = 64


def serve(folder: Path, /, *, socket: Path) -> None:
    """Answer requests on the Unix socket ``socket`` for ever."""
    articles = Articles(folder)
    articles.warm()
    handler = type("BoundHandler", (Handler,), {"articles": articles})
    # Bound under another name first, so that the path appears once connecting to it works.
    early = socket.with_name(socket.name + ".early")
    with Server(str(early), handler) as server:
        early.rename(socket)
        server.serve_forever()


if __name__ == "__main__":
    run_program(__doc__, prepare=prepare, serve=serve)
