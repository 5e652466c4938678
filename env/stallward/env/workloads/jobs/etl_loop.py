"""Extracts, transforms and loads lines of a text in several processes; a unit is 1,000 lines.

Each worker reads its own part of the text over and over. It keeps the newest records in a
dictionary of Python objects and now and then writes them to a file, as such programs do.

Run: ``python -m stallward.env.workloads.jobs.etl_loop TEXT --workers 2 --records 150000
--scratch DIR --report PATH``
"""

from __future__ import annotations

import argparse
import csv
import itertools
import multiprocessing
import os
from collections.abc import Iterator
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Final

from stallward.env.workloads.report import UnitReport

BATCH_LINES: Final = 1000
_FIELD: Final = 12
_BATCHES_OF_A_FILE: Final = 100


def lines_of(path: Path, *, part: int, parts: int) -> Iterator[str]:
    """Generate the lines of one of the equal parts of a file, over and over."""
    size = path.stat().st_size
    first, end = size * part // parts, size * (part + 1) // parts
    while True:
        with path.open("rb") as file:
            if first > 0:  # what is left of a line that begins in the part before
                file.seek(first - 1)
                file.readline()
            while file.tell() < end and (line := file.readline()):
                yield line.decode("ascii", "replace")


def record_of(line: str) -> dict[str, str | int]:
    """Turn a line into a record."""
    name, rest = line[:_FIELD], line[_FIELD:].strip()
    return {"name": name, "rest": rest, "length": len(rest), "digits": sum(map(str.isdigit, rest))}


class Worker:
    """One worker.

    Args:
        text: The text to read.
        part: Which of the parts is this worker's.
        parts: How many parts there are.
        records: How many records it keeps.
        scratch: The folder that it writes to.
    """

    def __init__(self, text: Path, *, part: int, parts: int, records: int, scratch: Path) -> None:
        self._lines = lines_of(text, part=part, parts=parts)
        self._place = 0
        self._records = records
        self._path = scratch / f"loaded-{part}.csv"
        self._batches = 0
        self.kept: dict[int, dict[str, str | int]] = {}

    def step(self) -> None:
        """Turn one batch of lines into records; the oldest ones make room for them."""
        for line in itertools.islice(self._lines, BATCH_LINES):
            self.kept[self._place % self._records] = record_of(line)
            self._place += 1
        self._batches += 1
        if self._batches % _BATCHES_OF_A_FILE == 0:
            with self._path.open("w", newline="", encoding="ascii") as file:
                writer = csv.writer(file)
                writer.writerows(record.values() for record in self.kept.values())


def _work(worker: Worker, done: SimpleQueue[int], parent: int) -> None:
    while os.getppid() == parent:  # a parent that was killed ends no children
        worker.step()
        done.put(1)


def main() -> None:
    """Work until killed, with the options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("text", type=Path)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--records", type=int, default=150_000, help="of each worker")
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--report", type=Path, required=True)
    args = parser.parse_args()
    report = UnitReport(args.report)
    report.add(0)
    context = multiprocessing.get_context("fork")
    done: SimpleQueue[int] = context.SimpleQueue()
    for part in range(args.workers):
        worker = Worker(
            args.text,
            part=part,
            parts=args.workers,
            records=args.records,
            scratch=args.scratch,
        )
        context.Process(target=_work, args=(worker, done, os.getpid()), daemon=True).start()
    while True:
        report.add(done.get())


if __name__ == "__main__":
    main()
