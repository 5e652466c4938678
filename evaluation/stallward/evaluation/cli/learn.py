"""``stallward record``, ``fit``, ``train`` and ``export``: from a node to a policy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stallward.evaluation.cli import output
from stallward.evaluation.errors import UsageError


def record(
    scenario: Annotated[
        str, typer.Argument(help="Name of a shipped scenario, or a TOML file.")
    ] = "",
    arm: Annotated[str, typer.Option(help="Controller to run; see `stallward arms`.")] = "none",
    seconds: Annotated[float, typer.Option(min=1.0, help="Measured length.")] = 60.0,
    burn_in_seconds: Annotated[float, typer.Option(min=0.0, help="Run before measuring.")] = 8.0,
    seed: Annotated[int, typer.Option(help="Seeds load, data and controller.")] = 1,
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
) -> None:
    """Record one run of a scenario under one controller (needs root).

    With --all, the recordings of a plan file are made; those that exist already are kept, or
    with --replace made again. All of a scenario are told one latency target: that of those that
    are kept, else it is measured once.
    """
    from stallward.evaluation.record import (  # noqa: PLC0415
        RecordRequest,
        record_all,
        record_one,
    )

    if every:
        if scenario:
            raise UsageError(
                "--all records every scenario of its plan.", next_step="Leave out the scenario."
            )
        with output.progress("record") as report:
            made = record_all(
                plan, out or Path("recordings"), report, only=only or (), replace=replace
            )
        output.line(f"{len(made)} recordings made in {out or Path('recordings')}")
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
    )
    where = out or Path("recordings") / request.name
    with output.progress("record") as report:
        record_one(request, where, report)
    output.line(f"{where}")


def fit(
    recordings: Annotated[
        list[Path] | None, typer.Argument(help="Recordings, or directories of them.")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Directory for one twin per scenario, or a .json file for one.")
    ] = Path("build/twins"),
    seconds: Annotated[float, typer.Option(min=1.0, help="Time for the search.")] = 120.0,
    leave_out: Annotated[str, typer.Option(help="Arm to leave out, to check the fit.")] = "",
    seed: Annotated[int, typer.Option(help="Seeds the search.")] = 1,
) -> None:
    """Fit the twin to recordings; the result is a distribution of parameters."""
    from stallward.evaluation.pipeline import fit_twin  # noqa: PLC0415

    with output.progress("fit") as report:
        written = fit_twin(
            recordings or [Path("recordings")],
            out=out,
            seconds=seconds,
            leave_out=leave_out,
            seed=seed,
            report=report,
        )
    for path in written:
        output.line(f"{path}")


def train(
    twin: Annotated[
        list[str] | None,
        typer.Option(help="Fitted twin, file or name; may be repeated [all shipped ones]."),
    ] = None,
    out: Annotated[Path, typer.Option(help="New directory for the run.")] = Path("build/run"),
    seconds: Annotated[float, typer.Option(min=1.0, help="Time for training.")] = 600.0,
    seeds: Annotated[int, typer.Option(min=1, help="Runs; the best lower bound wins.")] = 1,
    seed: Annotated[int, typer.Option(help="First seed.")] = 1,
) -> None:
    """Train a PPO policy on a fitted twin (torch, on the CPU)."""
    from stallward.evaluation.pipeline import train_policy  # noqa: PLC0415

    with output.progress("train") as report:
        train_policy(
            twin or ["default"], out=out, seconds=seconds, seeds=seeds, seed=seed, report=report
        )
    output.line(f"{out}")


def export(
    run: Annotated[Path, typer.Argument(help="The directory `stallward train` wrote.")],
    out: Annotated[Path, typer.Option(help="The policy file.")] = Path("build/policy.onnx"),
) -> None:
    """Export a trained policy as one ONNX file with its card beside it."""
    from stallward.evaluation.pipeline import export_policy  # noqa: PLC0415

    export_policy(run, out=out)
    output.line(f"{out}")
