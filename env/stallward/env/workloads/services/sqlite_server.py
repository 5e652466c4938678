r"""A small server over an SQLite database.

``prepare DIR`` writes the database. ``serve DIR --socket PATH`` answers a line of numbers,
``NUMBER NUMBER ...\n``, by ``ok BYTES\n``, the length of the documents with these numbers
together, or by ``error`` and a number that no document has. SQLite's own cache is memory of the
process, which can be swapped out. What it does not hold comes from the page cache. Both are filled
before the socket is there.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from stallward.env.workloads.command_line import run_program
from stallward.env.workloads.services.line_server import serve

_NAME: Final = "documents.sqlite"
_KIB: Final = 1 << 10
_MIB: Final = 1 << 20


def prepare(
    folder: Path, /, *, documents: int = 300_000, document_bytes: int = 900, seed: int = 1
) -> None:
    """Write documents of random bytes, with numbers from 0 on."""
    folder.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(folder / _NAME)
    connection.execute("PRAGMA journal_mode = OFF")
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("CREATE TABLE documents (number INTEGER PRIMARY KEY, body BLOB NOT NULL)")
    connection.executemany(
        "INSERT INTO documents VALUES (?, ?)", _rows(documents, document_bytes, seed)
    )
    connection.commit()
    connection.close()


def _rows(documents: int, document_bytes: int, seed: int) -> Iterator[tuple[int, bytes]]:
    rng = random.Random(seed)  # noqa: S311 - not for secrets
    for number in range(documents):
        yield number, rng.randbytes(document_bytes)


class Documents:
    """The database, opened to be read.

    Args:
        folder: A folder that was prepared.
        cache_mib: The size of SQLite's own cache.
    """

    def __init__(self, folder: Path, *, cache_mib: int) -> None:
        self._path = folder / _NAME
        self._connection = sqlite3.connect(f"file:{self._path}?mode=ro", uri=True)
        self._connection.execute(f"PRAGMA cache_size = -{cache_mib * _KIB}")

    def warm(self) -> int:
        """Read everything once; return how many documents there are."""
        with self._path.open("rb", buffering=0) as file:
            while file.read(_MIB):
                pass
        query = "SELECT count(*), sum(length(body)) FROM documents"
        return int(self._connection.execute(query).fetchone()[0])

    def answer(self, request: bytes) -> bytes:
        """Read the requested documents."""
        total = 0
        query = "SELECT body FROM documents WHERE number = ?"
        for word in request.split():
            row = self._connection.execute(query, (int(word),)).fetchone()
            if row is None:
                return b"error no document " + word + b"\n"
            total += len(row[0])
        return b"ok %d\n" % total

    def close(self) -> None:
        """Close the database."""
        self._connection.close()


def serve_documents(folder: Path, /, *, socket: Path, cache_mib: int = 8) -> None:
    """Serve the documents, once they are in memory."""
    documents = Documents(folder, cache_mib=cache_mib)
    documents.warm()
    serve(documents.answer, socket)


if __name__ == "__main__":
    run_program(__doc__, prepare=prepare, serve=serve_documents)
