"""``stallward arms``."""

from __future__ import annotations

from stallward.actuator.cli import output
from stallward.actuator.cli.options import Json
from stallward.agent.registry import controllers
from stallward.env.sandbox.peers.programs import PEERS


def arms(as_json: Json = False) -> None:
    """List the arms to compare, and their arguments.

    An arm is NAME or NAME:key=value,key=value; NAME#2 is a second arm with the same controller.
    With peer:NAME the program itself runs, and the daemon only watches.
    """
    entries = controllers()
    peers = [(f"peer:{peer.name}", peer.summary) for peer in PEERS]
    if as_json:
        listed = [(e.name, e.summary, dict(e.parameters)) for e in entries]
        listed += [(name, summary, {}) for name, summary in peers]
        keys = ("name", "summary", "parameters")
        output.print_json([dict(zip(keys, values, strict=True)) for values in listed])
        return
    rows = [(e.name, e.summary) for e in entries]
    output.table(("arm", "what it does"), [*rows, *peers])
    for entry in entries:
        if entry.parameters:
            output.line()
            output.line(f"{entry.name}:")
            for key, meaning in entry.parameters.items():
                output.line(f"  {key:<12} {meaning}")
