"""``stallward ab plan``."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from stallward.actuator.cli import output
from stallward.actuator.cli.options import Json
from stallward.env.catalogue.find import recording_folders
from stallward.env.recording.recording import load_recording
from stallward.evaluation.cli.ab import Measure, primary_measure
from stallward.evaluation.experiments.planning import (
    ExperimentNeeds,
    plan_experiment,
    series_of_experiment,
)
from stallward.evaluation.results.serialise import to_json


def plan(
    recordings: Annotated[
        list[Path], typer.Argument(help="Recordings of the node, or directories of them.")
    ],
    measure: Measure = "block-p99",
    effect: Annotated[
        float, typer.Option(help="Effect to show: 0.1 is 10 % more, -0.1 is 10 % less.")
    ] = 0.1,
    block_seconds: Annotated[
        float, typer.Option(min=2.0, max=86400.0, help="Measured length of a block.")
    ] = 60.0,
    burn_in_seconds: Annotated[
        float | None,
        typer.Option(min=0.0, max=86400.0, help="Burn-in [1.5 mixing times of the p95]."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Say how many pairs of blocks show an effect on a node.

    The recordings are cut into blocks as an experiment would. How much neighbouring blocks differ,
    although they ran the same controller, says what an effect has to stand out from.
    """
    primary = primary_measure(measure)
    needs = plan_experiment(
        [series_of_experiment(load_recording(path)) for path in recording_folders(recordings)],
        primary,
        effect,
        block_s=block_seconds,
        burn_in_s=burn_in_seconds,
    )
    if as_json:
        output.print_json(to_json(needs))
        return
    output.table(("", "pairs", "time"), _rows(needs))
    output.line()
    output.line(
        f"To show {100 * effect:+g} % of {measure} in four of five experiments, with blocks of "
        f"{needs.block_s:g} s after {needs.burn_in_s:g} s of burn-in (mixing time "
        f"{needs.mixing_s:.1f} s). Neighbouring blocks differ by a factor of "
        f"{math.exp(needs.spread.spread):.2f} ({needs.spread.pairs} pairs)."
    )


def _rows(needs: ExperimentNeeds) -> list[tuple[str, str, str]]:
    cases = (
        ("number fixed before", needs.pairs.fixed_pairs),
        ("stopped when it is certain, at most", needs.pairs.sequential_pairs),
        ("the same, half of the experiments", needs.pairs.typical_pairs),
    )
    return [
        (what, "over 1000", "")
        if pairs is None
        else (what, str(pairs), output.duration(needs.length_s(pairs)))
        for what, pairs in cases
    ]
