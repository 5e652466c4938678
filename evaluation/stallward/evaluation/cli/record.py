"""``stallward record``: recordings, of a scenario run here or of what a daemon left."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from stallward.actuator.cli import output
from stallward.actuator.cli.node import DEFAULT_CONFIG, check_config
from stallward.actuator.cli.options import LONGEST_S, Seed
from stallward.agent.errors import UsageError

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
        float, typer.Option(min=0.0, max=LONGEST_S, help="Run before measuring.")
    ] = 8.0,
    seed: Seed = 1,
    condition: Annotated[
        str, typer.Option(help="together, alone, ample or background.")
    ] = "together",
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
        typer.Option(help="With --all: only names like this, as '*-latd-*'; may be repeated."),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="With --all: record again what exists already.")
    ] = False,
    source: Annotated[
        Path | None,
        typer.Option("--from", help="Run nothing: convert what a daemon left in its record.dir."),
    ] = None,
    config: Annotated[
        Path, typer.Option(help="With --from: the daemon's configuration.")
    ] = DEFAULT_CONFIG,
    requests: Annotated[
        Path | None,
        typer.Option(help="With --from: the application's log [the one in the configuration]."),
    ] = None,
) -> None:
    """Record one run under one controller (needs root).

    With --all, the recordings of a plan file are made, in an order drawn from its seed; those
    that exist already, whole and of the scenario as it is now, are kept, or with --replace made
    again. So what was interrupted goes on where it stopped. All of a scenario are told one
    latency target: that of those that are kept, else it is measured once.

    With --from, nothing is run and no root is needed: the tick records of a daemon become a
    recording, with the requests of the application's log where there is one.
    """
    if every and (scenario or source):
        raise UsageError(
            "--all records every scenario of its plan.",
            next_step="Leave out the scenario and --from.",
        )
    if every:
        _all(plan, out or DEFAULT_OUT, only or (), replace=replace)
    elif source is not None:
        _convert(source, out, config=config, requests=requests, name=scenario or "node")
    else:
        _one(scenario, arm, condition, seconds, burn_in_seconds, seed, out)


def _all(plan: Path | None, out: Path, only: Sequence[str], *, replace: bool) -> None:
    from stallward.evaluation.blocks.record import record_all  # noqa: PLC0415

    with output.progress("record") as report:
        made = record_all(plan, out, report, only=only, replace=replace)
    output.line(f"{len(made)} recordings made in {out}")


def _convert(
    source: Path, out: Path | None, *, config: Path, requests: Path | None, name: str
) -> None:
    from stallward.env.recording.from_frames import convert_frames  # noqa: PLC0415

    if out is None:
        raise UsageError(
            "Nothing says where the recording goes.", next_step="Name a new directory with --out."
        )
    check_config(config)
    with output.progress("record") as report:
        report(f"reading {source}", 0.0)
        made = convert_frames(source, out, config=config, name=name, requests=requests)
    output.note(made.summary)
    output.line(f"{out}")


def _one(
    scenario: str,
    arm: str,
    condition: str,
    seconds: float,
    burn_in_s: float,
    seed: int,
    out: Path | None,
) -> None:
    from stallward.evaluation.blocks.record import record_one  # noqa: PLC0415
    from stallward.evaluation.blocks.record_plan import RecordRequest  # noqa: PLC0415

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
        burn_in_s=burn_in_s,
        seed=seed,
    )
    where = out or DEFAULT_OUT / request.name
    with output.progress("record") as report:
        record_one(request, where, report)
    output.line(f"{where}")
