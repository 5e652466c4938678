"""``stallward resident``: which of its pages a running program holds and touches."""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from stallward.actuator.cli import output
from stallward.actuator.cli.options import LONGEST_S, Json
from stallward.actuator.kernel.paths import DEFAULT_PATHS
from stallward.agent.errors import UsageError
from stallward.env.errors import WorkloadError
from stallward.evaluation.results.serialise import to_json
from stallward.lens.page_tables import PAGE_BYTES
from stallward.lens.resident.report.files import write_resident
from stallward.lens.resident.report.page import headline, mapping_table, mib
from stallward.lens.resident.report.result import ResidentResult
from stallward.lens.resident.report.tables import TableFormat
from stallward.lens.resident.series import Look, ResidentSeries
from stallward.lens.resident.single_step import step_through
from stallward.lens.resident.watch import WatchSettings, watch
from stallward.training.pipeline.outputs import check_writable

_DEFAULT_DIR = Path("build/resident")
_SHOWN_EVERY_S = 1.0
_MOST_ROWS = 12


def resident(
    command: Annotated[
        list[str] | None,
        typer.Argument(help="A program to start, and its arguments.", metavar="COMMAND"),
    ] = None,
    pid: Annotated[
        int | None, typer.Option(min=1, help="Watch this process, which runs already, instead.")
    ] = None,
    every: Annotated[
        float, typer.Option(min=0.01, max=LONGEST_S, help="Seconds between two looks.")
    ] = 0.5,
    seconds: Annotated[
        float | None,
        typer.Option(min=0.0, max=LONGEST_S, help="How long to watch [until it ends, or Ctrl-C]."),
    ] = None,
    window: Annotated[
        float | None,
        typer.Option(
            min=0.02,
            max=LONGEST_S,
            help="Also see which pages are touched, in windows of up to so many seconds.",
        ),
    ] = None,
    step: Annotated[
        int | None,
        typer.Option(min=1, help="Run COMMAND by single steps; look after so many instructions."),
    ] = None,
    file_format: Annotated[
        TableFormat, typer.Option("--format", help="The format of the tables.")
    ] = TableFormat.PARQUET,
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = _DEFAULT_DIR,
    as_json: Json = False,
) -> None:
    """Watch which pages of a process are in memory or touched.

    It reads the page tables of one running process, or of a program that it starts. --window
    clears the referenced bits of the process again and again, so that the size of its working set
    comes out, over time and by mapping; the kernel may then take its pages for less used than they
    are. --step looks between instructions, for small programs.
    """
    if (pid is None) == (not command):
        raise UsageError(
            "There is nothing to watch." if pid is None else "There are two programs to watch.",
            next_step="Give either --pid PID or -- and a command.",
        )
    if step is not None and (not command or window is not None):
        raise UsageError(
            "--step runs a command by itself, and sees no references.",
            next_step="Give a command after --, and leave out --window.",
        )
    if window is not None and window < every:
        raise UsageError(
            f"--window is {window:g}, shorter than the time between two looks ({every:g} s).",
            next_step="Give a longer window, or a shorter --every.",
        )
    check_writable(out / "result.json")
    series = _seen(command, pid, every, seconds, window, step, _reporter(quiet=as_json))
    source = shlex.join(command) if command else f"process {pid}"
    result = write_resident(out, series, source=source, kind=file_format)
    if as_json:
        output.print_json(to_json(result))
    else:
        _print(result, out)
    if series.error is not None:
        raise series.error


def _seen(
    command: list[str] | None,
    pid: int | None,
    every: float,
    seconds: float | None,
    window: float | None,
    step: int | None,
    report: Callable[[Look], None],
) -> ResidentSeries:
    proc = DEFAULT_PATHS.proc
    if command and step is not None:
        return step_through(proc, command, instructions=step, most_s=seconds, report=report)
    settings = WatchSettings(every_s=every, window_s=window, most_s=seconds)
    if command:
        return _watch_command(proc, command, settings, report)
    return watch(proc, pid or 0, settings, report=report)


def _watch_command(
    proc: Path, command: list[str], settings: WatchSettings, report: Callable[[Look], None]
) -> ResidentSeries:
    """Start a program, watch it, and end it if it still runs then."""
    try:
        process = subprocess.Popen(command, stdout=2)
    except OSError as error:
        raise WorkloadError(
            f"{command[0]} cannot be started: {error.strerror}.",
            next_step="Check the command; it is looked up as a shell would.",
        ) from error
    try:
        return watch(proc, process.pid, settings, report=report, ends_by_itself=True)
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(5.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _reporter(*, quiet: bool) -> Callable[[Look], None]:
    """Print what is seen, once a second."""
    shown_s = -_SHOWN_EVERY_S
    headers = ("time", "present", "file", "swapped", "reserved", "touched")

    def report(look: Look) -> None:
        nonlocal shown_s
        now_s = time.monotonic()
        if quiet or now_s - shown_s < _SHOWN_EVERY_S:
            return
        if shown_s < 0.0:
            output.line("  ".join(name.rjust(10) for name in headers) + "  MiB")
        shown_s = now_s
        pages = (look.present, look.file, look.swapped, look.reserved)
        cells = [f"{look.time:,.1f}", *(mib(one, PAGE_BYTES) for one in pages)]
        cells.append("-" if look.referenced is None else mib(look.referenced, PAGE_BYTES))
        output.line("  ".join(cell.rjust(10) for cell in cells))

    return report


def _print(result: ResidentResult, out: Path) -> None:
    table = mapping_table(result, _MOST_ROWS)
    output.line()
    output.table(table.headers, table.rows)
    output.line()
    output.line(headline(result))
    output.line(f"{out / 'result.json'}  {out / 'report.html'}")
