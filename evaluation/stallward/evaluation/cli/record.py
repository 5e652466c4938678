"""``stallward record``: record runs of scenarios, or convert the tick records of a daemon."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stallward.actuator.cli import output
from stallward.actuator.cli.options import DEFAULT_CONFIG, LONGEST_S, Seed, check_config
from stallward.agent.errors import UsageError
from stallward.env.recording.from_frames import convert_frames
from stallward.env.recording.stored import days_of
from stallward.evaluation.blocks.record import RecordRequest, record_all, record_one
from stallward.evaluation.cli.target_option import TargetOption

DEFAULT_OUT = Path("recordings")


def record(
    scenario: Annotated[
        str,
        typer.Argument(help="Name of a shipped scenario, or a TOML file; with --from any name."),
    ] = "",
    arm: Annotated[str, typer.Option(help="Controller to run; see `stallward arms`.")] = "none",
    seconds: Annotated[
        float, typer.Option(min=1.0, max=LONGEST_S, help="Measured length.")
    ] = 60.0,
    burn_in_seconds: Annotated[
        float, typer.Option(min=0.0, max=LONGEST_S, help="Length of the burn-in before that.")
    ] = 8.0,
    seed: Seed = 1,
    condition: Annotated[
        str, typer.Option(help="together, alone, ample or background.")
    ] = "together",
    target: TargetOption = "stated",
    out: Annotated[
        Path | None, typer.Option(help="New directory [recordings/SCENARIO-ARM-SEED].")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Record the whole shipped set again.")
    ] = False,
    plan: Annotated[
        Path | None, typer.Option(help="With --all: a plan file instead of the shipped one.")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(help="With --all: only names like '*-latd-*'; may be repeated."),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="With --all: record existing runs again.")
    ] = False,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from", help="Run nothing: convert tick records from a daemon's record.dir."
        ),
    ] = None,
    config: Annotated[
        Path, typer.Option(help="With --from: the daemon's configuration.")
    ] = DEFAULT_CONFIG,
    requests: Annotated[
        list[Path] | None,
        typer.Option(
            help="With --from: the application's log [the configured one]; may be repeated."
        ),
    ] = None,
    piece_seconds: Annotated[
        float,
        typer.Option(min=60.0, max=86400.0, help="With --from: the most seconds of a recording."),
    ] = 600.0,
    pieces: Annotated[
        int,
        typer.Option(min=1, max=1000, help="With --from: the most recordings of a controller."),
    ] = 12,
    days: Annotated[
        str,
        typer.Option(
            metavar="FROM..TO", help="With --from: only these days (UTC), the same each time."
        ),
    ] = "",
    node: Annotated[
        str, typer.Option(help="With --from: the node's name [that of this machine].")
    ] = "",
) -> None:
    """Record one run under one controller (needs root).

    With --all, the recordings of a plan file are made, in an order drawn from its seed. Complete
    recordings of the scenario as it is now are kept, or made again with --replace; so an
    interrupted command can be repeated. All recordings of a scenario have one latency target:
    that of the kept recordings, or else it is measured once.

    With --from, nothing is run and no root is needed: the tick records of a daemon become a
    directory of recordings, each of a time under one controller and one configuration. They have
    the requests of the application's log, and the work that the configuration counts.
    """
    if every and (scenario or source):
        raise UsageError(
            "--all records every scenario of its plan.",
            next_step="Leave out the scenario and --from.",
        )
    if every:
        with output.progress("record") as report:
            made = record_all(plan, out or DEFAULT_OUT, report, only=only or (), replace=replace)
        output.line(f"{len(made)} recordings made in {out or DEFAULT_OUT}")
        return
    if source is not None:
        if out is None:
            raise UsageError(
                "The recordings have no directory.", next_step="Name a new directory with --out."
            )
        check_config(config)
        with output.progress("record") as report:
            report(f"reading {source}", 0.0)
            converted = convert_frames(
                source,
                out,
                config=config,
                name=scenario or "node",
                requests=requests or (),
                most_piece_s=piece_seconds,
                most_pieces=pieces,
                days=days_of(days) if days else None,
                node_name=node,
            )
        output.note(converted.summary)
        for path in converted.recordings:
            output.line(f"{path}")
        return
    if not scenario:
        raise UsageError(
            "No scenario was named.",
            next_step="`stallward scenarios` lists them; --all records the shipped set.",
        )
    request = RecordRequest(
        scenario=scenario,
        arm=arm,
        condition=condition,
        seconds=seconds,
        burn_in_s=burn_in_seconds,
        seed=seed,
        target=target,
    )
    directory = out or DEFAULT_OUT / request.name
    with output.progress("record") as report:
        record_one(request, directory, report)
    output.line(f"{directory}")
