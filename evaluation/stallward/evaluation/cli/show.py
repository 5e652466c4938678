"""``stallward arms``, ``scenarios`` and ``describe``: lists and reference pages."""

from __future__ import annotations

import typer

from stallward.actuator.cli import output
from stallward.actuator.cli.options import Json
from stallward.evaluation.cli.plugins import PluggedGroup, stand_in


def arms(as_json: Json = False) -> None:
    """List the arms to compare, and their arguments.

    An arm is NAME or NAME:key=value,key=value; NAME#2 is a second arm with the same controller.
    With peer:NAME the program itself runs, and the daemon only watches.
    """
    from stallward.agent.registry import controllers  # noqa: PLC0415
    from stallward.env.sandbox.peers.programs import PEERS  # noqa: PLC0415

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


def scenarios(as_json: Json = False) -> None:
    """List the shipped scenarios, with background, target and part."""
    from stallward.env.recording.split import load_split  # noqa: PLC0415
    from stallward.env.scenario.file import find_scenarios  # noqa: PLC0415

    shipped, split = find_scenarios(), load_split()
    if as_json:
        output.print_json(
            [
                {
                    "name": s.name,
                    "summary": s.summary,
                    "part": split.part_of(s),
                    "sandbox_limit_bytes": s.sandbox.limit_bytes,
                    "slo_ms": s.protected.slo.latency_ms,
                    "slo_quantile": s.protected.slo.quantile,
                    "background": [group.name for group in s.background],
                    "needs": [need.program for need in s.needs],
                }
                for s in shipped
            ]
        )
        return
    output.table(
        ("scenario", "part", "memory MiB", "SLO ms", "background", "what it is"),
        [
            (
                s.name,
                split.part_of(s),
                f"{s.sandbox.limit_bytes >> 20}",
                "auto"
                if s.protected.slo.latency_ms is None
                else f"{s.protected.slo.latency_ms:g}",
                ", ".join(group.name for group in s.background),
                s.summary,
            )
            for s in shipped
        ],
    )


describe = typer.Typer(
    cls=PluggedGroup,
    help="Print a reference page, as Markdown.",
    no_args_is_help=True,
)


@describe.command(epilog="Example: stallward describe signals")
def signals() -> None:
    """List every signal: unit, meaning, source on each kind of node, and cost."""
    from stallward.actuator.sensors.reference_page import signals_page  # noqa: PLC0415

    output.text(signals_page())


@describe.command(epilog="Example: stallward describe observation")
def observation() -> None:
    """List the features of the observation, and the actions."""
    from stallward.agent.reference_pages import observation_page  # noqa: PLC0415

    output.text(observation_page())


stand_in(describe, "describe.trace")
