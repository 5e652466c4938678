"""The output of commands: tables, JSON and progress."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import typer

_LINE_EVERY_S = 10.0

Report = Callable[[str, float], None]
"""Called by a long step to report progress: a message, and the share that is done, 0 to 1."""


def line(text: str = "") -> None:
    """Print one line on stdout."""
    typer.echo(text)


def note(text: str) -> None:
    """Print one line on stderr, for messages that are not part of the result."""
    typer.echo(text, err=True)


def print_json(value: object) -> None:
    """Print one JSON document on stdout.

    Args:
        value: Dicts, lists, strings, numbers, booleans and ``None``.
    """
    typer.echo(json.dumps(value, indent=2, allow_nan=False))


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print an aligned table; number columns after the first are right-aligned."""
    widths = [max(len(str(row[i])) for row in (headers, *rows)) for i in range(len(headers))]
    right = [
        bool(rows) and all(_numeric(row[i]) for row in rows) and i > 0 for i in range(len(headers))
    ]
    for number, row in enumerate((headers, *rows)):
        cells = [
            cell.rjust(width) if flush else cell.ljust(width)
            for cell, width, flush in zip(row, widths, right, strict=True)
        ]
        typer.echo("  ".join(cells).rstrip())
        if number == 0:
            typer.echo("  ".join("-" * width for width in widths))


def _numeric(cell: str) -> bool:
    return cell in ("", "-") or cell.lstrip("+-<>")[:1].isdigit()


@contextmanager
def progress(title: str) -> Iterator[Report]:
    """Show a progress bar on a terminal, and a few plain lines elsewhere.

    The bar goes to stderr, so that ``--json`` on stdout stays clean.
    """
    if sys.stderr.isatty():
        with _bar(title) as report:
            yield report
        return
    last_message, last_s = "", -_LINE_EVERY_S

    def plain(message: str, share: float) -> None:
        nonlocal last_message, last_s
        now_s = time.monotonic()
        # A changed counter in a message prints no new line, so the log of a long step stays short.
        words = re.sub(r"[\d,.]+$", "", re.split(r"[:,]", message)[0])
        if words != last_message or now_s - last_s >= _LINE_EVERY_S:
            last_message, last_s = words, now_s
            note(f"{title} {100 * share:3.0f} % {message}")

    yield plain


@contextmanager
def _bar(title: str) -> Iterator[Report]:
    from rich.console import Console  # noqa: PLC0415 - only long steps on a terminal draw bars
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[what]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=1.0, what="")

        def report(message: str, share: float) -> None:
            bar.update(task, completed=share, what=message)

        yield report
        bar.update(task, completed=1.0, what="")
