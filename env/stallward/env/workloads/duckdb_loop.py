"""Runs aggregations that do not fit DuckDB's memory, for ever; a unit is one of them.

Each groups rows of a made-up table by a key with as many values as rows would need more memory
than the limit, so DuckDB spills to its temporary folder.

Run: ``python -m stallward.env.workloads.duckdb_loop --memory-mib 250 --scratch DIR --report PATH``
"""

from __future__ import annotations

import argparse
from pathlib import Path

import duckdb

from stallward.env.workloads.report import UnitReport

_QUERY = """
SELECT count(*), max(total) FROM (
  SELECT hash(range * {odd}) % {keys} AS key, sum(range) AS total,
         min(hash(range)::VARCHAR) AS least
  FROM range({rows}) GROUP BY key
)
"""


def run(*, memory_mib: int, rows: int, scratch: Path, report_path: Path, seed: int) -> None:
    """Query until killed."""
    connection = duckdb.connect(str(scratch / "work.duckdb"))
    connection.execute(f"SET memory_limit = '{memory_mib}MiB'")
    connection.execute(f"SET temp_directory = '{scratch}'")
    connection.execute("SET threads = 1")
    connection.execute("SET preserve_insertion_order = false")
    report = UnitReport(report_path)
    report.add(0)
    query = _QUERY.format(odd=2 * (seed % 1000) + 1, keys=rows, rows=rows)
    while True:
        connection.execute(query).fetchall()
        report.add(1)


def main() -> None:
    """Query with the options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--memory-mib", type=int, default=250)
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--report", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    run(
        memory_mib=args.memory_mib,
        rows=args.rows,
        scratch=args.scratch,
        report_path=args.report,
        seed=args.seed,
    )


if __name__ == "__main__":
    main()
