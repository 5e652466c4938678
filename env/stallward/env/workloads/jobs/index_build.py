"""Builds a table with an index in SQLite, over and over; a unit is 1,000 rows.

The keys come in random order, so the pages of the index are changed all over the file. SQLite's
own cache holds a part of them, and the page cache the rest.

Run: ``python -m stallward.env.workloads.jobs.index_build --rows 800000 --cache-mib 100
--scratch DIR --report PATH``
"""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path
from typing import Final

from stallward.env.workloads.command_line import run_program
from stallward.env.workloads.report import work

BATCH_ROWS: Final = 1000
_TEXT_BYTES: Final = 100
_KIB: Final = 1 << 10


class Builder:
    """Builds one database after the other.

    Args:
        folder: The folder of the database.
        rows: How many rows a database has in the end.
        cache_mib: The size of SQLite's own cache.
        seed: The seed of the rows.
    """

    def __init__(self, folder: Path, *, rows: int, cache_mib: int, seed: int) -> None:
        self._path = folder / "build.sqlite"
        self._most_rows = rows
        self._cache_mib = cache_mib
        self._rng = random.Random(seed)  # noqa: S311 - not for secrets
        self._connection = self._open()
        self.rows = 0
        """How many rows the database has."""

    def _open(self) -> sqlite3.Connection:
        self._path.unlink(missing_ok=True)
        connection = sqlite3.connect(self._path)
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute(f"PRAGMA cache_size = -{self._cache_mib * _KIB}")
        connection.execute("CREATE TABLE lines (name TEXT NOT NULL, text TEXT NOT NULL)")
        connection.execute("CREATE INDEX by_name ON lines (name, text)")
        return connection

    def step(self) -> None:
        """Insert one batch of rows, into a new database if this one has enough."""
        if self.rows >= self._most_rows:
            self.close()
            self._connection = self._open()
            self.rows = 0
        text = self._rng.randbytes(BATCH_ROWS * _TEXT_BYTES // 2).hex()
        pieces = (text[i : i + _TEXT_BYTES] for i in range(0, len(text), _TEXT_BYTES))
        rows = ((f"{self._rng.getrandbits(64):016x}", piece) for piece in pieces)
        self._connection.executemany("INSERT INTO lines VALUES (?, ?)", rows)
        self._connection.commit()
        self.rows += BATCH_ROWS

    def close(self) -> None:
        """Close the database."""
        self._connection.close()


def main(
    *, scratch: Path, report: Path, rows: int = 800_000, cache_mib: int = 100, seed: int = 1
) -> None:
    """Insert rows until killed."""
    work(report, lambda: Builder(scratch, rows=rows, cache_mib=cache_mib, seed=seed).step)


if __name__ == "__main__":
    run_program(__doc__, main)
