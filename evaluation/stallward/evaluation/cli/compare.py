"""``stallward compare``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stallward.actuator.cli import output
from stallward.actuator.cli.options import Json, Seed
from stallward.agent.errors import UsageError
from stallward.evaluation.arms import parse_arms
from stallward.evaluation.cli.cluster_options import Ray, Storage
from stallward.evaluation.cli.target_option import TargetOption
from stallward.evaluation.comparison.compare import run_comparison
from stallward.evaluation.comparison.request import ComparisonRequest
from stallward.evaluation.report import text
from stallward.evaluation.results.serialise import to_json
from stallward.training.parallel.choose import open_executor


def compare(
    scenario: Annotated[str, typer.Argument(help="Name of a shipped scenario, or a TOML file.")],
    arms: Annotated[
        str,
        typer.Option(help="Controllers, separated by commas, or all; see `stallward arms`."),
    ] = "none,latd,ppo",
    live: Annotated[
        bool, typer.Option("--live/--twin", help="On this machine (root), or on its twin.")
    ] = True,
    blocks: Annotated[int, typer.Option(help="Rounds; each has one block of everything.")] = 5,
    block_seconds: Annotated[float, typer.Option(help="Measured seconds per block.")] = 30.0,
    burn_in_seconds: Annotated[
        float, typer.Option(help="Seconds before the measured part of each block.")
    ] = 8.0,
    seed: Seed = 1,
    out: Annotated[
        Path | None, typer.Option(help="New or resumable directory [build/compare/SCENARIO].")
    ] = None,
    policy: Annotated[
        str, typer.Option(help="Policy file or name for the arms ppo and remote.")
    ] = "default",
    twin_file: Annotated[
        str, typer.Option("--twin-file", help="Fitted twin, file or name; for --twin.")
    ] = "default",
    target: TargetOption = "stated",
    ray: Ray = None,
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """Compare controllers in randomised blocks.

    It prints latency, impact and background work of each, with 95 % intervals. Every round
    has one block of the application alone, one with ample memory, one of the background by itself
    and one of every arm. The directory can be resumed after an interruption with the same
    command; raising --blocks adds rounds.
    """
    request = ComparisonRequest(
        scenario=scenario,
        arms=parse_arms(arms),
        mode="live" if live else "twin",
        rounds=blocks,
        block_s=block_seconds,
        burn_in_s=burn_in_seconds,
        seed=seed,
        out=out or Path("build/compare") / Path(scenario).stem,
        policy=policy,
        twin=twin_file,
        target=target,
    )
    if live and (ray is not None or storage is not None):
        raise UsageError(
            "A live comparison runs on this machine, one block after the other.",
            next_step="Use --ray and --storage with --twin.",
        )
    with (
        open_executor(ray, storage, request.out) as executor,
        output.progress("compare") as report,
    ):
        side_by_side = None if ray is None and storage is None else executor
        result = run_comparison(request, report, executor=side_by_side).result
    if as_json:
        output.print_json(to_json(result))
        return
    headers, rows = text.result_rows(result)
    output.table(headers, rows)
    output.line()
    if each := text.application_rows(result):
        output.table(text.APPLICATION_HEADERS, each)
        output.line()
        output.line(text.about_applications(result))
    else:
        output.line(f"target: {text.target(result.table)} ({result.table.slo_source})")
    for reason in result.method.left_out.values():
        output.note(f"Left out: {reason}")
    output.line(f"{request.out / 'result.json'}  {request.out / 'report.html'}")
