"""``stallward border``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stallward.actuator.cli import output
from stallward.actuator.cli.options import Json, Seed
from stallward.evaluation.cli.target_option import TargetOption
from stallward.research.border.measure import BorderRequest, BorderResult, measure_border


def border(
    scenario: Annotated[str, typer.Argument(help="Name of a shipped scenario, or a TOML file.")],
    levels: Annotated[
        str | None,
        typer.Option(
            help="Percents that are lent, keep, none and partition, joined by + [those of the arm]."
        ),
    ] = None,
    dwell_seconds: Annotated[
        float, typer.Option(min=20.0, max=3600.0, help="How long each level is held.")
    ] = 60.0,
    rounds: Annotated[int, typer.Option(min=1, max=100, help="How often each is held.")] = 1,
    seed: Seed = 1,
    target: TargetOption = "stated",
    out: Annotated[
        Path | None, typer.Option(help="Directory; a run in it is kept [build/border/SCENARIO].")
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure what lending the application's memory costs and gives.

    One live run holds one loan of the application's memory after another, in a random order, and
    no limits at all (needs root). It prints latency, work and swap traffic of each level, and
    draws border.svg.
    """
    request = BorderRequest(
        scenario=scenario,
        levels=levels,
        dwell_s=dwell_seconds,
        rounds=rounds,
        seed=seed,
        target=target,
    )
    where = out or Path("build/border") / Path(scenario).stem
    with output.progress("border") as report:
        result = measure_border(request, where, report)
    if as_json:
        output.print_json(result.to_json())
        return
    _print(result)
    output.note(f"{where / 'border.svg'} shows it.")


def _print(result: BorderResult) -> None:
    rows = [
        (
            level.label,
            f"{level.p95_ms:.2f}",
            f"{level.p99_ms:.2f}",
            f"{100 * level.met_ratio:.0f} %",
            f"{ratio:.2f}",
            *(f"{work:.3g}" for work in level.work_per_s),
            f"{level.swap_in_pages_per_s:.0f}",
            f"{level.swap_out_pages_per_s:.0f}",
            f"{100 * level.stall_ratio:.1f} %",
        )
        for level, ratio in zip(result.levels, result.work_ratios, strict=True)
    ]
    output.table(
        (
            "lent",
            "p95 ms",
            "p99 ms",
            "met",
            "work",
            *(f"{name}/s" for name in result.groups),
            "pages in/s",
            "out/s",
            "stalled",
        ),
        rows,
    )
    output.line()
    output.line(
        f"Target {result.target_ms:.3g} ms ({result.target}). Work is over that at the first level."
    )
