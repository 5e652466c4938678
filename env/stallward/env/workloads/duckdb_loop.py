"""Works for ever on a window of tables that does not fit DuckDB's memory; a unit is one step.

Each step replaces the oldest table of the window by a new one and aggregates a random one. The
window is larger than the memory limit, so most steps write one table to the temporary folder and
read another back. The whole window stays in use, but a step is short, so progress shows within a
second.

Run: ``python -m stallward.env.workloads.duckdb_loop --memory-mib 250 --scratch DIR --report PATH``
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Final

import duckdb

from stallward.env.workloads.command_line import run_program
from stallward.env.workloads.report import work

_COLUMNS: Final = 3
_ROW_BYTES: Final = 8 * _COLUMNS
_MIB: Final = 1024 * 1024

_REPLACE: Final = """
CREATE OR REPLACE TEMP TABLE part{part} AS
SELECT hash(range * {odd}) AS key, hash(range + {step}) AS a, hash(range - {step}) AS b
FROM range({rows})
"""
_AGGREGATE: Final = """
SELECT count(*), max(total) FROM (
  SELECT key % {keys} AS k, sum(a) AS total, max(b) AS most FROM part{part} GROUP BY k
)
"""


class Window:
    """The window of tables. They hold hashes, which do not compress.

    Args:
        memory_mib: DuckDB's memory limit.
        window_mib: The size of all tables together.
        rows: How many rows a table has, of 24 bytes each.
        scratch: An empty folder for the database and the tables that do not fit the memory.
        seed: The seed of the values and of the choice of tables.
    """

    def __init__(
        self, *, memory_mib: int, window_mib: int, rows: int, scratch: Path, seed: int
    ) -> None:
        self.connection = duckdb.connect(str(scratch / "work.duckdb"))
        self.connection.execute(f"SET memory_limit = '{memory_mib}MiB'")
        self.connection.execute(f"SET temp_directory = '{scratch}'")
        self.connection.execute("SET threads = 1")
        self.connection.execute("SET preserve_insertion_order = false")
        self._rows = rows
        self._parts = max(1, window_mib * _MIB // (rows * _ROW_BYTES))
        self._rng = random.Random(seed)  # noqa: S311 - not for secrets
        self._seed = seed % 1000
        self._steps = 0

    def step(self) -> None:
        """Replace the oldest table and aggregate a random one."""
        number = self._steps
        odd = 2 * (self._seed + number) + 1
        part = number % self._parts
        self.connection.execute(_REPLACE.format(part=part, odd=odd, step=number, rows=self._rows))
        self._steps += 1
        other = self._rng.randrange(min(self._steps, self._parts))
        query = _AGGREGATE.format(part=other, keys=max(1, self._rows // 4))
        self.connection.execute(query).fetchall()


def main(
    *,
    scratch: Path,
    report: Path,
    memory_mib: int = 250,
    window_mib: int = 500,
    rows: int = 300_000,
    seed: int = 1,
) -> None:
    """Do steps until killed."""

    def window() -> Callable[[], None]:
        return Window(
            memory_mib=memory_mib, window_mib=window_mib, rows=rows, scratch=scratch, seed=seed
        ).step

    work(report, window)


if __name__ == "__main__":
    run_program(__doc__, main)
