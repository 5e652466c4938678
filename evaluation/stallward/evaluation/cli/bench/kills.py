"""``stallward bench kills``: what the daemon leaves when its processes are killed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from stallward.actuator.cli import output
from stallward.actuator.cli.options import Json, Seed
from stallward.evaluation.cli.bench.text import print_figures

if TYPE_CHECKING:
    from stallward.evaluation.bench.kills.tally import Tally


def kills(
    count: Annotated[int, typer.Option("--kills", min=1, help="Number of kills.")] = 1000,
    controller: Annotated[
        str, typer.Option(help="The daemon's controller [one that moves every lever].")
    ] = "",
    ends: Annotated[
        bool, typer.Option("--ends", help="The controller may end programs of the background.")
    ] = False,
    seed: Seed = 1,
    as_json: Json = False,
) -> None:
    """Kill the daemon's processes at random, and check what they leave.

    It kills at random instants under pressure; a kill takes about 3.5 s; needs root. Settings that
    are not restored are printed on standard error for each kill; the exit code is 1 if there are
    any. If it is interrupted, it prints the figures of the finished kills and says so.
    """
    from stallward.evaluation.bench.kills.bench import bench_kills  # noqa: PLC0415
    from stallward.evaluation.bench.kills.campaign import ENDING_STORM, STORM  # noqa: PLC0415
    from stallward.evaluation.bench.kills.tally import Tally  # noqa: PLC0415

    tally = Tally()
    try:
        with output.progress("bench kills") as report:
            bench_kills(
                tally,
                kills=count,
                controller=controller or (ENDING_STORM if ends else STORM),
                ends=ends,
                seed=seed,
                report=report,
            )
    except BaseException:  # the kills of an hour must not be lost
        if tally.kills:
            _print_kills(tally, as_json=as_json, interrupted=True)
        raise
    _print_kills(tally, as_json=as_json, interrupted=False)
    if any(kill.problems for kill in tally.kills):
        raise typer.Exit(1)


def _print_kills(tally: Tally, *, as_json: bool, interrupted: bool) -> None:
    from stallward.evaluation.bench.kills.tally import MEANINGS  # noqa: PLC0415
    from stallward.evaluation.bench.overhead import figure_rows  # noqa: PLC0415

    for number, kill in enumerate(tally.kills):
        for line in kill.problems:
            output.note(f"kill {number} ({kill.target}): {line}")
    figures = tally.figures()
    if as_json:
        output.print_json({"interrupted": interrupted, **figures})
        return
    if interrupted:
        output.line(f"Interrupted after {len(tally.kills)} kills.")
    print_figures(figures, figure_rows(figures, MEANINGS), as_json=False)
