"""The command ``stallward top``."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final

import typer

from stallward.actuator.cli import output
from stallward.actuator.cli.connect import DEFAULT_SOCKET, Socket, connect
from stallward.actuator.cli.options import LONGEST_S
from stallward.actuator.cli.top.history import History
from stallward.actuator.cli.top.source import Elapsed, Pace, replayed
from stallward.actuator.cli.top.text import whole
from stallward.actuator.record.tick_record import TickRecord
from stallward.agent.errors import UsageError

_LIVE_S: Final = 2.0
"""How long a running daemon is watched for --once: rates need a second."""


def top(
    socket: Socket = DEFAULT_SOCKET,
    replay: Annotated[
        Path | None, typer.Option(help="Show a daemon's record.dir instead.")
    ] = None,
    at: Annotated[
        float, typer.Option(min=0, max=LONGEST_S, help="Seconds after its first tick.")
    ] = 0.0,
    speed: Annotated[
        float, typer.Option(min=0.1, max=1000, help="How many times faster than it was.")
    ] = 1.0,
    target_ms: Annotated[
        float | None, typer.Option(min=0.001, help="Judge a single application by this target.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Print it once, as text.")] = False,
) -> None:
    """Show latency, stalls, groups and decisions of a node.

    Of a running daemon, or of what one has recorded; keys lead back in time. A terminal is needed,
    unless --once is given.
    """
    if not once and not sys.stdout.isatty():
        raise UsageError(
            "Standard output is not a terminal.",
            next_step="Give --once to print everything as text.",
        )
    if replay is not None:
        history = History(target_ms)
        if once:
            _print(replayed(replay, at_s=at, once=True), history)
        else:
            pace = Pace(speed)
            _show(replayed(replay, at_s=at, wait=pace.wait), history, f"{replay}", pace)
        return
    with connect(socket) as client:
        status = client.status()
        history = History(target_ms, status.slots, status.slo_ms)
        watched = (one.record for one in client.watch())
        if once:
            _print(watched, history, _LIVE_S)
        else:
            _show(watched, history, f"{socket}")


def _print(records: Iterable[TickRecord], history: History, length_s: float = math.inf) -> None:
    """Print what is known after some seconds of records, or at their end."""
    elapsed = Elapsed()
    for record in records:
        history.add(record)
        if elapsed.take(record) >= length_s:
            break
    view = history.view()
    if view is not None:
        output.text(whole(view))


def _show(
    records: Iterable[TickRecord], history: History, title: str, pace: Pace | None = None
) -> None:
    from stallward.actuator.cli.top.screen import TopScreen  # noqa: PLC0415 - Textual takes 0.5 s

    TopScreen(records, history, title, pace).run()
