"""``stallward capacity``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from stallward.actuator.cli import output
from stallward.actuator.cli.options import Json, Seed
from stallward.evaluation.arms import parse_arms
from stallward.evaluation.cli.target_option import TargetOption
from stallward.research.capacity import CapacityRequest, CapacityResult, measure_capacity

_MIB = 1 << 20


def capacity(
    scenario: Annotated[str, typer.Argument(help="Name of a shipped scenario, or a TOML file.")],
    arms: Annotated[
        str, typer.Option(help="Controllers, separated by commas; see `stallward arms`.")
    ] = "none,partition,ppo",
    block_seconds: Annotated[
        float, typer.Option(min=10.0, max=3600.0, help="Measured seconds per block.")
    ] = 60.0,
    burn_in_seconds: Annotated[
        float, typer.Option(min=0.0, max=3600.0, help="Seconds before that.")
    ] = 30.0,
    least_met: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Share of the seconds that meet the target.")
    ] = 0.99,
    least_work: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Share of the work with ample memory.")
    ] = 0.9,
    seed: Seed = 1,
    target: TargetOption = "stated",
    policy: Annotated[
        str, typer.Option(help="Policy file or name for the arms ppo and remote.")
    ] = "default",
    out: Annotated[
        Path | None, typer.Option(help="New or resumable directory [build/capacity/SCENARIO].")
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure the least memory at which each controller serves.

    A node serves if the target is met in nearly all seconds and the background does nearly all
    the work that it does with ample memory. The smallest such zone is found by bisection, live
    (needs root), and measured once more. The directory can be resumed with the same command.
    """
    request = CapacityRequest(
        scenario=scenario,
        arms=parse_arms(arms),
        out=out or Path("build/capacity") / Path(scenario).stem,
        block_s=block_seconds,
        burn_in_s=burn_in_seconds,
        seed=seed,
        target=target,
        policy=policy,
        least_met=least_met,
        least_work=least_work,
    )
    with output.progress("capacity") as report:
        result = measure_capacity(request, report)
    if as_json:
        output.print_json(asdict(result))
        return
    _print(result)


def _print(result: CapacityResult) -> None:
    rows = [
        (
            arm.arm,
            f"{arm.zone_bytes / _MIB:.0f}",
            f"{100 * arm.saved_ratio:.0f} %",
            f"{len(arm.blocks)}",
        )
        for arm in result.arms
    ]
    output.table(("arm", "MiB", "less than all want", "blocks"), rows)
    output.line()
    output.line(
        f"All want {result.wanted_bytes / _MIB:.0f} MiB; sizes differ by "
        f"{result.step_bytes / _MIB:.0f}. Target {result.target_ms:.3g} ms ({result.target})."
    )
