"""``stallward trace``: what memory does, ten times a second."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Literal

import typer

from stallward.actuator.cli import output
from stallward.actuator.cli.options import LONGEST_S
from stallward.actuator.kernel.paths import DEFAULT_PATHS, Paths
from stallward.actuator.runtime.process_setup import lock_memory, unlock_memory
from stallward.lens.cli.trace.request import TraceRequest, find_target, open_tracer
from stallward.lens.cli.trace.sinks import finish, open_sinks
from stallward.lens.errors import LensError
from stallward.lens.trace.command import Command
from stallward.lens.trace.csv_file import rows_of
from stallward.lens.trace.kinds import Key, Kind
from stallward.lens.trace.run import End, Summary
from stallward.lens.trace.run import trace as record_trace
from stallward.lens.trace.tables import TABLES
from stallward.lens.trace.targets import StartedProcess, Target
from stallward.lens.trace.tick import Layout
from stallward.lens.trace.waiting import stopping_at_signals


def trace(
    kind: Annotated[Kind, typer.Argument(help="What to trace.")],
    command: Annotated[
        list[str] | None,
        typer.Argument(help="A program to start and trace, and its arguments.", metavar="COMMAND"),
    ] = None,
    pid: Annotated[int | None, typer.Option(min=1, help="Trace this process.")] = None,
    tree: Annotated[bool, typer.Option("--tree", help="And all that it starts.")] = False,
    cgroup: Annotated[
        str | None, typer.Option(help="Trace this cgroup, by its path below the root.")
    ] = None,
    hz: Annotated[float, typer.Option(min=0.001, max=1000.0, help="Ticks a second.")] = 10.0,
    seconds: Annotated[
        float | None,
        typer.Option(min=0.001, max=LONGEST_S, help="How long [until Ctrl-C, or the end of it]."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="File for the rows: .csv or .parquet.")] = None,
    columns: Annotated[
        Literal["all", "thesis"],
        typer.Option(help="All, or those of the thesis's script in its units."),
    ] = "all",
    pss_every: Annotated[
        int,
        typer.Option(
            min=0, help="Of process: read PSS and USS at every N-th tick only; 0 for never."
        ),
    ] = 1,
    page_cache: Annotated[
        bool, typer.Option(help="Of process and node: count page-cache lookups by eBPF.")
    ] = True,
    by: Annotated[Key, typer.Option(help="Of largest: the order.")] = Key.RSS,
    count: Annotated[
        int, typer.Option(min=0, help="Of largest: how many processes; 0 for all.")
    ] = 15,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no table on the terminal.")] = False,
) -> None:
    """Trace memory, stalls, page cache and block I/O over time.

    The rows go to a table on the terminal, to a file, or as CSV to a pipe. What was read stays if
    the trace is killed. A command ends with the trace, which hands its exit code on.
    """
    request = TraceRequest(
        kind=kind,
        pid=pid,
        tree=tree,
        cgroup=cgroup,
        command=tuple(command or ()),
        pss_every=pss_every,
        page_cache=page_cache,
        key=by,
        count=count,
    )
    code = run(
        request,
        DEFAULT_PATHS,
        period_s=1.0 / hz,
        seconds=seconds,
        out=out,
        thesis=columns == "thesis",
        quiet=quiet,
    )
    if code:
        raise typer.Exit(code)


def run(
    request: TraceRequest,
    paths: Paths,
    *,
    period_s: float,
    seconds: float | None = None,
    out: Path | None = None,
    thesis: bool = False,
    quiet: bool = False,
) -> int:
    """Trace as asked for; returns the exit code of the command, or 0.

    Args:
        request: What to trace.
        paths: The roots of the kernel's files.
        period_s: Time from one tick to the next.
        seconds: How long; ``None`` until it is stopped, or what is traced has ended.
        out: The file for the rows.
        thesis: Whether to write the thesis's columns.
        quiet: Whether to show no table.

    Raises:
        StallwardError: If it cannot be traced, or not to the end; what was read is kept.
    """
    table = next(table for table in TABLES if table.kind == request.kind)
    layout = Layout(table=table, thesis=thesis)
    summary = Summary()
    code = 0
    unmade: LensError | None = None
    with ExitStack() as stack:
        stop = stack.enter_context(stopping_at_signals())
        started = StartedProcess(paths.proc)
        command: Command | None = None
        try:
            target: Target = started if request.command else find_target(request, paths)
            stack.callback(target.close)
            tracer = open_tracer(request, paths, target)
            stack.callback(tracer.close)
            sinks = open_sinks(request, layout, out, quiet=quiet, stack=stack, unread=stop.request)
            said = _tell_missing(tracer.missing, frozenset())
            if lock_memory():  # when memory is short, the trace is wanted most
                stack.callback(unlock_memory)
            if request.command:
                command = Command(request.command)
                started.begin(command.pid)
            record_trace(
                tracer,
                target,
                sinks,
                stop,
                period_s=period_s,
                seconds=seconds,
                summary=summary,
            )
        finally:
            if command is not None:
                code = command.end(
                    grace_s=_GRACE_S if summary.end is End.STOPPED else 0.0,
                    terminate=started.terminate,
                )
            if out is not None and summary.ticks:
                unmade = finish(out, layout)
            if summary.ticks:
                where = "" if out is None else f" {out if unmade is None else rows_of(out)}"
                output.note(f"trace {request.kind}: {summary.text}{where}")
        _tell_missing(tracer.missing, said)
        if summary.end is End.TARGET and command is None:
            output.note(f"trace {request.kind}: {target.name} has ended.")
    if unmade is not None:  # not before: it must not take the place of an error of the trace
        raise unmade
    return code


_GRACE_S = 5.0
"""How long a command may go on after Ctrl-C, which it gets, too."""


def _tell_missing(missing: tuple[str, ...], said: frozenset[str]) -> frozenset[str]:
    for what in dict.fromkeys(missing):
        if what not in said:
            output.note(f"trace: not read: {what}")
    return said | set(missing)
