"""``stallward oracle``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stallward.actuator.cli import output
from stallward.actuator.cli.options import Json, Seed
from stallward.agent.errors import UsageError
from stallward.env.twin.inputs.find import find_twin_of
from stallward.env.twin.inputs.fitted import load_fitted
from stallward.evaluation.cli.cluster_options import Ray
from stallward.evaluation.results.serialise import to_json
from stallward.research.hindsight import oracle_of
from stallward.research.look_ahead import (
    LookAhead,
    LookAheadSettings,
    look_ahead,
    parse_varied,
)
from stallward.research.screening import screen_scenario
from stallward.training.parallel.ray_cluster import open_ray


def oracle(
    scenario: Annotated[str, typer.Argument(help="Name of a scenario with a fitted twin.")],
    result: Annotated[
        Path | None,
        typer.Option(help="A comparison's result.json, to name the oracle of its static arms."),
    ] = None,
    count: Annotated[int, typer.Option(min=1, max=64, help="Settings to name.")] = 8,
    twin_file: Annotated[
        str, typer.Option("--twin-file", help="Fitted twin, file or name.")
    ] = "default",
    ahead: Annotated[
        bool,
        typer.Option(
            "--look-ahead", help="On the twin: what looking ahead gains over partition instead."
        ),
    ] = False,
    varied: Annotated[
        str,
        typer.Option("--vary", help="With --look-ahead: what it may choose, separated by commas."),
    ] = "shares,kept,tuning",
    ray: Ray = None,
    seed: Seed = 1,
    as_json: Json = False,
) -> None:
    """Name the static settings that may be the best in hindsight.

    A grid of limits, pauses and profiles is tried on the twin. Compare the printed settings live,
    then name the best of them with --result.
    """
    if result is not None:
        best = oracle_of(result, Path(scenario).stem)
        if as_json:
            output.print_json({"scenario": scenario, **to_json(best)})
        else:
            output.line(best.arm)
            if not best.meets_target:
                output.note("No static arm keeps the target; this one does most often.")
        return
    twin = load_fitted(find_twin_of(scenario, twin_file))
    if ahead:
        if ray is not None:
            raise UsageError(
                "Looking ahead is one computation, in which each choice follows from the last.",
                next_step="Run it without --ray.",
            )
        settings = LookAheadSettings(varied=parse_varied(varied))
        _print_look_ahead(look_ahead(twin, settings, seed=seed), as_json=as_json)
        return
    if ray is None:
        screening = screen_scenario(twin, count=count, seed=seed)
    else:
        with open_ray(ray) as executor, output.progress("oracle") as report:
            screening = screen_scenario(
                twin, count=count, seed=seed, executor=executor, report=report
            )
    if as_json:
        output.print_json(to_json(screening))
        return
    rows = [
        (arm.arm, f"{100 * arm.background_work:.0f} %", f"{100 * arm.violated:.1f} %")
        for arm in screening.arms
    ]
    output.table(("arm", "background work", "windows missed"), rows)
    output.line()
    output.line(
        f"Best of {screening.settings} settings on the twin; {100 * screening.allowed:.1f} % of "
        "the windows may miss the target. Next:"
    )
    output.line(f"stallward compare {scenario} --arms '{screening.spec}'")


def _print_look_ahead(result: LookAhead, *, as_json: bool) -> None:
    if as_json:
        output.print_json(to_json(result))
        return
    rows = [
        (
            name,
            f"{100 * one.progress:.0f} %",
            f"{100 * one.window_violated:.1f} %",
            f"{100 * one.excess:+.0f} %",
            f"{100 * one.slow:.1f} %",
        )
        for name, one in (("partition", result.partition), ("look-ahead", result.oracle))
    ]
    headers = ("controller", "background work", "windows missed", "mean latency", "slow requests")
    output.table(headers, rows)
    output.line()
    output.line(
        f"{100 * result.deviations_share:.0f} % of its choices differ from what partition decides."
    )
