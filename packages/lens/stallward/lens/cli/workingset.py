"""``stallward workingset``: what a trace of memory references says about a program."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from types import FrameType
from typing import Annotated, Literal

import typer

from stallward.actuator.cli import output
from stallward.actuator.cli.options import Json
from stallward.agent.errors import UsageError
from stallward.evaluation.results.serialise import to_json
from stallward.lens.errors import TraceError
from stallward.lens.workingset.analysis import DEFAULT_THETAS, Analysis, AnalysisSettings, analyse
from stallward.lens.workingset.lackey import ReadInto
from stallward.lens.workingset.pages import PageSettings
from stallward.lens.workingset.reference_map import WHOLE, parse_range
from stallward.lens.workingset.report.figures import Costs
from stallward.lens.workingset.report.files import write_analysis
from stallward.lens.workingset.report.page import headline, policy_table, window_table
from stallward.lens.workingset.report.result import WorkingsetResult
from stallward.lens.workingset.valgrind import traced_program
from stallward.training.pipeline.outputs import check_writable

_DEFAULT_DIR = Path("build/workingset")
_STDIN = "-"
_REPORTED_LINES = 20_000_000


def workingset(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            help="A program to trace by Valgrind, and its arguments.", metavar="COMMAND"
        ),
    ] = None,
    trace: Annotated[
        str | None,
        typer.Option(help="Read Lackey's text from this file instead; - is stdin."),
    ] = None,
    page_bytes: Annotated[int, typer.Option(help="Size of a page: a power of two.")] = 4096,
    classes: Annotated[
        str, typer.Option(help="Which references count: some of the four, with commas.")
    ] = "instruction,load,store,modify",
    clock: Annotated[
        Literal["instructions", "references"], typer.Option(help="What time is counted in.")
    ] = "instructions",
    theta: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            help="A window for the size over time; several times for several "
            "[100000, 1000000, 10000000].",
        ),
    ] = None,
    lru_rate: Annotated[
        float,
        typer.Option(
            min=0.0, max=1.0, help="Share of pages for LRU: 1 is exact, 0 leaves LRU out."
        ),
    ] = 1.0,
    lru_pages: Annotated[
        int | None,
        typer.Option(
            min=256, help="Most pages for LRU; of more, as many as fit are looked at [all]."
        ),
    ] = None,
    fault_time: Annotated[
        float, typer.Option(min=0.0, help="D: how long a fault takes, by the clock.")
    ] = 100_000.0,
    overhead: Annotated[
        float, typer.Option(min=0.0, help="gamma: what a fault costs the system, by the clock.")
    ] = 0.0,
    working_set_overhead: Annotated[
        float | None,
        typer.Option(min=0.0, help="The same under the working-set policy [as --overhead]."),
    ] = None,
    zoom: Annotated[
        str | None,
        typer.Option(help="Addresses that the map shows, such as 0x4000000-0x4100000 [all]."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = _DEFAULT_DIR,
    as_json: Json = False,
) -> None:
    """Analyse when a program uses which of its memory.

    One pass gives its working set over time, lifetime functions, LRU curve and phases. The trace
    is Valgrind Lackey's text (`valgrind --tool=lackey --trace-mem=yes`), from a file, a
    pipe, or of a command that is traced right away. Time is counted in instructions.
    """
    if (trace is None) == (command is None):
        raise UsageError(
            "There is nothing to analyse." if trace is None else "There are two traces.",
            next_step="Give either --trace FILE or -- and a command.",
        )
    settings = AnalysisSettings(
        pages=PageSettings(
            page_bytes=page_bytes,
            classes=tuple(name.strip() for name in classes.split(",")),
            clock=clock,
        ),
        thetas=tuple(theta or DEFAULT_THETAS),
        lru_rate=lru_rate or None,
        lru_pages=lru_pages,
        zoom=WHOLE if zoom is None else parse_range(zoom),
    )
    costs = Costs(
        fault_time=fault_time,
        overhead=overhead,
        working_set_overhead=overhead if working_set_overhead is None else working_set_overhead,
    )
    check_writable(out / "result.json")
    source = shlex.join(command) if command else "stdin" if trace == _STDIN else str(trace)
    analysis = _analysed(command, trace, settings)
    result = write_analysis(out, analysis, costs, source=source)
    if as_json:
        output.print_json(to_json(result))
    else:
        _print(result, out)
    error = analysis.error or analysis.lru_error
    if error is not None:
        raise error


def _analysed(
    command: list[str] | None, trace: str | None, settings: AnalysisSettings
) -> Analysis:
    if command:
        with traced_program(command) as read_into, ending_on_interrupt(read_into) as until_then:
            return analyse(until_then, settings, report=_reporter())
    opened = FileIO(0, closefd=False) if trace == _STDIN else FileIO(str(trace))
    with (
        opened as file,
        ending_on_interrupt(lambda view: file.readinto(view) or 0) as until_then,
    ):
        return analyse(until_then, settings, report=_reporter())


@contextmanager
def ending_on_interrupt(read_into: ReadInto) -> Iterator[ReadInto]:
    """Let the first Ctrl-C end the reading, so that what was read is analysed; not the second."""
    interrupted = False

    def end(_number: int, _frame: FrameType | None) -> None:
        nonlocal interrupted
        interrupted = True
        signal.signal(signal.SIGINT, previous)

    def read(view: memoryview) -> int:
        if interrupted:
            raise TraceError("The trace was interrupted.")
        return read_into(view)

    previous = signal.signal(signal.SIGINT, end)
    try:
        yield read
    finally:
        signal.signal(signal.SIGINT, previous)


def _reporter() -> Callable[[int], None]:
    """Tell now and then how far it is; how much is to come is not known."""
    told = 0

    def report(lines: int) -> None:
        nonlocal told
        if lines - told >= _REPORTED_LINES:
            told = lines
            output.note(f"workingset: {lines / 1e6:,.0f} million lines")

    return report


def _print(result: WorkingsetResult, out: Path) -> None:
    for table in (policy_table(result), window_table(result)):
        output.table(table.headers, table.rows)
        output.line()
    output.line(headline(result))
    output.line(f"{out / 'result.json'}  {out / 'report.html'}")
