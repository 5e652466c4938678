"""``stallward ctl report``: an application's latencies to a daemon."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from stallward.actuator.cli import output
from stallward.actuator.cli.connect import DEFAULT_SOCKET, Socket, connect
from stallward.actuator.client.latency_reports import LineBatches
from stallward.actuator.latency.config import UNIT_MS
from stallward.actuator.latency.line_format import LineFormat
from stallward.agent.errors import UsageError


def report(
    socket: Socket = DEFAULT_SOCKET,
    latency: Annotated[str, typer.Option(help="Column from 0, or a group of --pattern.")] = "0",
    ok: Annotated[str | None, typer.Option(help="Field that says if it was answered.")] = None,
    pattern: Annotated[str | None, typer.Option(help="Regular expression of a line.")] = None,
    separator: Annotated[str | None, typer.Option(help="Between columns; white space.")] = None,
    unit: Annotated[str, typer.Option(help="s, ms or us.")] = "ms",
    application: Annotated[str, typer.Option(help="Its name, where several are protected.")] = "",
) -> None:
    """Report the application's latencies from standard input.

    Each line is a request that ended. The daemon must be configured with source = "grpc" under
    [latency].
    """
    if unit not in UNIT_MS:
        raise UsageError(
            f"{unit!r} is not a unit.", next_step=f"Choose one of: {', '.join(UNIT_MS)}."
        )
    line_format = LineFormat(
        latency=latency,
        ok=ok,
        pattern=pattern,
        separator=separator,
        latency_unit_s=UNIT_MS[unit] / 1e3,
    )
    batches = LineBatches(sys.stdin.fileno(), line_format)
    with connect(socket) as client:
        summary = client.report(batches, application)
    output.line(
        f"{summary.accepted} reported, {summary.failed} failed, {summary.late} too late, "
        f"{summary.malformed + batches.tally.malformed} not understood"
    )
    if batches.tally.first_malformed:
        output.line(f"the first that was not understood: {batches.tally.first_malformed}")
