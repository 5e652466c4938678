"""``stallward fit``, ``train`` and ``export``: from recordings to a policy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stallward.evaluation.cli import output
from stallward.evaluation.cli.options import LONGEST_S, Seed


def fit(
    recordings: Annotated[
        list[Path] | None, typer.Argument(help="Recordings, or directories of them.")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Directory for one twin per scenario, or a .json file for one.")
    ] = Path("build/twins"),
    seconds: Annotated[
        float, typer.Option(min=1.0, max=LONGEST_S, help="Time for the search.")
    ] = 120.0,
    leave_out: Annotated[str, typer.Option(help="Arm to leave out, to check the fit.")] = "",
    start: Annotated[
        str, typer.Option(help="Fitted twin, file or name, at which the search begins.")
    ] = "",
    seed: Seed = 1,
) -> None:
    """Fit the twin to recordings.

    The result is a distribution of parameters; for recordings of several scenarios one each.
    """
    from stallward.evaluation.pipeline import fit_twin, load_twins  # noqa: PLC0415

    with output.progress("fit") as report:
        written = fit_twin(
            recordings or [Path("recordings")],
            out=out,
            seconds=seconds,
            leave_out=leave_out,
            seed=seed,
            start=load_twins((start,))[0] if start else None,
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
    seconds: Annotated[
        float, typer.Option(min=1.0, max=LONGEST_S, help="Time for training.")
    ] = 600.0,
    seeds: Annotated[int, typer.Option(min=1, help="Runs; the best lower bound wins.")] = 1,
    seed: Seed = 1,
) -> None:
    """Train a PPO policy on fitted twins (torch, on the CPU)."""
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
    """Export a trained policy as one ONNX file.

    Its card goes beside it, with the ending .md.
    """
    from stallward.evaluation.pipeline import export_policy  # noqa: PLC0415

    export_policy(run, out=out)
    output.line(f"{out}")
