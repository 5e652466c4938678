"""``stallward ctl status`` and ``watch``: what a daemon does."""

from __future__ import annotations

from typing import Annotated

import typer

from stallward.actuator.cli import output
from stallward.actuator.cli.connect import DEFAULT_SOCKET, Nodes, Socket, connect, on_many_nodes
from stallward.actuator.cli.options import Json
from stallward.actuator.cli.status_text import folded, status_rows, status_values
from stallward.actuator.cli.tick_text import TickPrinter


def status(
    socket: Socket = DEFAULT_SOCKET,
    everything: Annotated[
        bool, typer.Option("--all", help="List all signals and levers that the node lacks.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Print what the daemon is doing now."""
    with connect(socket) as client:
        answer = client.status()
    if as_json:
        output.print_json(status_values(answer))
        return
    output.table(("what", "value"), folded(status_rows(answer, everything=everything)))


def watch(
    socket: Socket = DEFAULT_SOCKET,
    every: Annotated[int, typer.Option(min=1, help="Show every n-th tick.")] = 1,
    count: Annotated[int, typer.Option(min=0, help="Stop after so many; 0 never.")] = 0,
    nodes: Nodes = None,
    as_json: Json = False,
) -> None:
    """Print one line a tick.

    It has the inputs of the decision, the decision and what the guard said. Of many nodes it also
    says at the end which ticks were lost.
    """
    if nodes is not None:
        on_many_nodes("ctl.watch")(nodes, every=every, count=count, as_json=as_json)
        return
    with connect(socket) as client:
        printer = TickPrinter(as_json=as_json, names=client.status().slots)
        for number, watched in enumerate(client.watch(every=every), start=1):
            text = printer.line(watched.record)
            if text:
                output.line(text)
            if count and number >= count:
                return
