"""``stallward ctl shadow``: how a policy in shadow mode differs."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from stallward.actuator.cli import output
from stallward.actuator.cli.connect import DEFAULT_SOCKET, Socket, connect
from stallward.actuator.cli.options import LONGEST_S, Json
from stallward.actuator.cli.shadow_text import shadow_lines, shadow_rows
from stallward.actuator.record.reading import read_records
from stallward.actuator.record.shadow_summary import ShadowTally
from stallward.agent.errors import UsageError


def shadow(
    socket: Socket = DEFAULT_SOCKET,
    seconds: Annotated[
        float, typer.Option(min=1.0, max=LONGEST_S, help="How long to watch.")
    ] = 60,
    recording: Annotated[
        Path | None, typer.Option(help="Instead, the daemon's record: [record] dir.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say how often a policy in shadow mode wanted something else.

    Also what it wanted of each slot, and when they differed longest.
    """
    tally = ShadowTally()
    names: tuple[str, ...] = ()
    if recording is None:
        with connect(socket) as client:
            names = client.status().slots
            deadline_s = time.monotonic() + seconds
            for watched in client.watch():
                tally.take(watched.record)
                if time.monotonic() >= deadline_s:
                    break
    else:
        for record in read_records(recording):
            tally.take(record)
    summary = tally.summary()
    if summary is None:
        raise UsageError(
            "No policy ran in shadow mode.",
            next_step="Load one, and turn it on: stallward ctl mode shadow.",
        )
    if as_json:
        output.print_json(asdict(summary))
        return
    output.table(("", "decides", "shadow"), shadow_rows(summary, names))
    output.line()
    for text in shadow_lines(summary):
        output.line(text)
