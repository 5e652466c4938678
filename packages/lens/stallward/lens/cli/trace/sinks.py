"""Where the rows of a trace go."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from stallward.agent.errors import UsageError
from stallward.lens.cli.trace.request import TraceRequest
from stallward.lens.errors import LensError
from stallward.lens.trace.csv_file import CsvSink, rows_of
from stallward.lens.trace.tick import Layout

if TYPE_CHECKING:
    from stallward.lens.trace.run import Sink

_CSV = ".csv"
_PARQUET = ".parquet"


def open_sinks(
    request: TraceRequest,
    layout: Layout,
    out: Path | None,
    *,
    quiet: bool,
    stack: ExitStack,
    unread: Callable[[], None],
) -> list[Sink]:
    """Open what takes the ticks: a file, a table on the terminal, or stdout.

    Args:
        request: What is traced.
        layout: The columns.
        out: The file, if there is one.
        quiet: Whether to show no table.
        stack: Closes them.
        unread: Is called when nobody reads stdout any more.

    Raises:
        UsageError: If the rows would go nowhere, or where they cannot.
        LensError: If the file cannot be written.
    """
    sinks: list[Sink] = []
    terminal = sys.stdout.isatty()
    if out is not None:
        file = CsvSink.create(_rows_file(out, layout), layout)
        stack.callback(file.close)
        sinks.append(file)
    elif request.command:
        raise UsageError(
            "The output of the command and the rows of the trace would mix.",
            next_step="Give --out FILE.",
        )
    elif not terminal:
        file = CsvSink(os.dup(sys.stdout.fileno()), "stdout", layout, unread)
        stack.callback(file.close)
        sinks.append(file)
    elif quiet:
        raise UsageError(
            "--quiet leaves nothing to look at.", next_step="Give --out FILE, or a pipe."
        )
    if terminal and not quiet and not request.command:
        from stallward.lens.cli.trace.live import LiveTable  # noqa: PLC0415

        sinks.append(stack.enter_context(LiveTable(layout.table, _title(request))))
    return sinks


def _title(request: TraceRequest) -> str:
    if request.pid is not None:
        return f"process {request.pid}{' and what it starts' if request.tree else ''}"
    if request.cgroup is not None:
        return f"cgroup {request.cgroup}"
    return f"by {request.key}" if request.kind == "largest" else "the whole machine"


def _rows_file(out: Path, layout: Layout) -> Path:
    """The CSV file that is written while the trace runs."""
    if out.suffix == _CSV:
        return out
    if out.suffix != _PARQUET:
        raise UsageError(
            f"{out} is neither CSV nor Parquet.", next_step="Let it end in .csv or .parquet."
        )
    if layout.thesis:
        raise UsageError(
            "The thesis's columns are CSV.", next_step="Let --out end in .csv, or leave --columns."
        )
    if find_spec("pyarrow") is None:
        raise UsageError(
            "Parquet needs pyarrow, which is not installed.",
            next_step="Let --out end in .csv, or install stallward[train].",
        )
    rows = rows_of(out)
    if rows.exists():
        raise UsageError(
            f"{rows} is left of a trace that was killed.",
            next_step=f"`stallward plot {out}` draws it. Move it, or give another --out.",
        )
    return rows


def finish(out: Path, layout: Layout) -> LensError | None:
    """Make a Parquet file of what was written, if that was asked for.

    Returns:
        Why it could not be made, as when the disk is full; the rows stay as CSV then.
    """
    if out.suffix != _PARQUET:
        return None
    from pyarrow import ArrowInvalid  # noqa: PLC0415

    from stallward.lens.plot.file import make_parquet  # noqa: PLC0415

    try:
        make_parquet(out, layout.table)
    except (ArrowInvalid, OSError) as error:
        return LensError(
            f"{out} cannot be made: {str(error).partition(chr(10))[0]:.200}.",
            next_step=f"The rows are in {rows_of(out)}; `stallward plot {out}` draws them.",
        )
    return None
