"""``stallward verdict``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from stallward.actuator.cli import output
from stallward.actuator.cli.options import Json
from stallward.evaluation.demo.run import shipped_recordings
from stallward.evaluation.results.serialise import to_json
from stallward.research.verdict.plan import load_verdict_plan
from stallward.research.verdict.result import load_verdict
from stallward.research.verdict.tables import verdict_tables
from stallward.research.verdict.verdict import run_verdict


def verdict(
    plan: Annotated[Path | None, typer.Option(help="Plan file [the shipped one].")] = None,
    out: Annotated[Path, typer.Option(help="Directory, new or resumable.")] = Path(
        "build/verdict"
    ),
    recordings: Annotated[
        Path | None,
        typer.Option(help="Recordings for twins fitted in hindsight [the shipped ones]."),
    ] = None,
    policy: Annotated[str, typer.Option(help="Policy file or name.")] = "default",
    oracle_of: Annotated[
        Path | None,
        typer.Option(help="A verdict whose oracles are measured, instead of hindsight settings."),
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Blocks of each arm [the plan's].")
    ] = None,
    show: Annotated[
        bool, typer.Option("--show", help="Run nothing: print the figures so far.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Judge the policy live on every held-out scenario.

    It is compared with every other controller, in randomised blocks. It takes hours (as root).
    After an interruption the same command resumes it, and --rounds may be raised.
    """
    if show:
        result = load_verdict(out)
    else:
        loaded = load_verdict_plan(plan)
        with output.progress("verdict") as report:
            result = run_verdict(
                loaded if rounds is None else replace(loaded, rounds=rounds),
                out,
                recordings=recordings or shipped_recordings(),
                policy=policy,
                oracle_of=oracle_of,
                report=report,
            )
    if as_json:
        output.print_json(to_json(result))
        return
    for table in verdict_tables(result):
        output.line(table.title)
        output.table(table.headers, table.rows)
        output.line()
    for name, why in result.failed.items():
        output.note(f"{name} is left out: {why}")
    output.line(f"Ships: {result.ships.controller}, for {result.ships.why}.")
