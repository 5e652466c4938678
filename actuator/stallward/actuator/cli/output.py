"""The output of commands: tables, JSON and progress."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import typer

from stallward.agent.printable import printable, printable_lines

_COUNTER: Final = re.compile(r"[:,]|\d[\d,.]*$")
"""Where the words of a message end and its details begin."""
_MINUTES_FROM_S: Final = 100.0
"""Durations from here on are written in minutes."""

Report = Callable[[str, float], None]
"""Called by a long step to report progress: a message, and the share that is done, 0 to 1."""


def line(text: str = "") -> None:
    """Print one line on stdout; what is not text in it, such as in a node's answer, is ``?``."""
    typer.echo(printable(text))


def text(whole: str) -> None:
    """Print a text of several lines on stdout, such as a page that the program has made."""
    typer.echo(printable_lines(whole.rstrip("\n")))


def note(text: str) -> None:
    """Print one line on stderr, for messages that are not part of the result."""
    typer.echo(printable(text), err=True)


def print_json(value: object) -> None:
    """Print one JSON document on stdout.

    Args:
        value: Dicts, lists, strings, numbers, booleans and ``None``.
    """
    typer.echo(json.dumps(value, indent=2, allow_nan=False))


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print an aligned table; number columns after the first are right-aligned."""
    for row in table_lines(headers, rows):
        typer.echo(row)


def table_lines(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of such a table."""
    widths = [max(len(printable(row[i])) for row in (headers, *rows)) for i in range(len(headers))]
    right = [
        bool(rows) and all(_numeric(row[i]) for row in rows) and i > 0 for i in range(len(headers))
    ]
    shown = [[printable(cell) for cell in row] for row in (headers, *rows)]
    lines = []
    for number, row in enumerate(shown):
        cells = [
            cell.rjust(width) if flush else cell.ljust(width)
            for cell, width, flush in zip(row, widths, right, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
        if number == 0:
            lines.append("  ".join("-" * width for width in widths))
    return lines


def _numeric(cell: str) -> bool:
    return cell in ("", "-") or cell.lstrip("+-<>")[:1].isdigit()


@contextmanager
def progress(title: str) -> Iterator[Report]:
    """Show a progress bar on a terminal, and one line that grows elsewhere.

    Both go to stderr, so that ``--json`` on stdout stays clean.
    """
    if not sys.stderr.isatty():
        with _growing_line(title) as report:
            yield report
        return
    from stallward.actuator.cli.progress_bar import progress_bar  # noqa: PLC0415 - rich takes 0.1 s

    with progress_bar(title) as report:
        yield report


@contextmanager
def _growing_line(title: str) -> Iterator[Report]:
    """Write one line, a piece for each tenth of the way, so that a log stays short."""
    begin_s = time.monotonic()
    tenths, step, separator = -1, "", " "

    def report(message: str, share: float) -> None:
        nonlocal tenths, step, separator
        reached = int(10.0 * min(max(share, 0.0), 0.99))
        if reached <= tenths:
            return
        words = _COUNTER.split(message)[0].strip()
        shown = f" {words}" if words != step else ""
        tenths, step = reached, words
        typer.echo(f"{separator}{10 * reached} %{shown}", err=True, nl=False)
        separator = ", "

    typer.echo(f"{title}:", err=True, nl=False)
    end = "stopped after"
    try:
        yield report
        end = "done in"
    finally:
        typer.echo(f"{separator}{end} {duration(time.monotonic() - begin_s)}", err=True)


def duration(passed_s: float) -> str:
    """A duration in words: in seconds, or in minutes where it is long."""
    return f"{passed_s:.0f} s" if passed_s < _MINUTES_FROM_S else f"{passed_s / 60.0:.1f} minutes"
