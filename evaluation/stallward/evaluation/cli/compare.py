"""``stallward compare``, ``fidelity`` and ``demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from stallward.actuator.cli import output
from stallward.actuator.cli.options import Json, Seed
from stallward.agent.errors import UsageError
from stallward.evaluation.cli.cluster_options import Ray, Storage
from stallward.evaluation.cli.target_option import TargetOption


def demo(
    out: Annotated[Path, typer.Option(help="Where the report and result go.")] = Path(
        "build/demo"
    ),
    scenario: Annotated[
        str, typer.Option(help="Scenario to run; the default degrades steepest.")
    ] = "",
    minutes: Annotated[
        float, typer.Option(min=1.0, max=600.0, help="Time for all stages together.")
    ] = 9.0,
    twin: Annotated[
        bool, typer.Option("--twin", help="Compare on the twin, even as root.")
    ] = False,
    seed: Seed = 1,
) -> None:
    """Do everything once, from fit to report.

    It fits the twin, trains a policy and exports it. Then it compares no control, a published
    rule, the rule that decides by default, the shipped policy and the one just trained. As root,
    on a kernel with PSI and a writable memory controller, the comparison runs live in a sandbox
    of its own; otherwise on the twin, and the first line says so. Nothing is left behind except
    the files in --out.
    """
    from stallward.evaluation.demo.run import DemoSettings, run_demo  # noqa: PLC0415

    run_demo(
        DemoSettings(out=out, scenario=scenario, minutes=minutes, twin=twin, seed=seed),
        say=output.line,
        progress=output.progress,
    )


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
    from stallward.evaluation.arms import parse_arms  # noqa: PLC0415
    from stallward.evaluation.comparison.compare import run_comparison  # noqa: PLC0415
    from stallward.evaluation.comparison.request import ComparisonRequest  # noqa: PLC0415
    from stallward.evaluation.report import text  # noqa: PLC0415
    from stallward.evaluation.results.serialise import to_json  # noqa: PLC0415
    from stallward.training.parallel.choose import open_executor  # noqa: PLC0415

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
    output.line(f"target: {text.target(result.table)} ({result.table.slo_source})")
    for reason in result.method.left_out.values():
        output.note(f"Left out: {reason}")
    output.line(f"{request.out / 'result.json'}  {request.out / 'report.html'}")


def fidelity(
    recordings: Annotated[
        Path, typer.Argument(help="Directory of recordings, of several arms.")
    ] = Path("recordings"),
    generations: Annotated[
        int, typer.Option(min=1, help="Generations of each fit, one fit per arm left out.")
    ] = 100,
    scenario: Annotated[str, typer.Option(help="Only this scenario.")] = "",
    arm: Annotated[str, typer.Option(help="Leave out only this arm [each in turn].")] = "",
    twin: Annotated[
        list[str] | None,
        typer.Option(
            help="Measure this twin instead of fits: file, name or directory; may be repeated."
        ),
    ] = None,
    results: Annotated[
        list[Path] | None,
        typer.Option(
            help="Rank the arms of these comparisons instead, live beside twin; may be repeated."
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Directory for fidelity.json and fidelity.html.")
    ] = Path("build/fidelity"),
    ray: Ray = None,
    storage: Storage = None,
    seed: Seed = 1,
    as_json: Json = False,
) -> None:
    """Measure the error of the twin against live runs.

    Each arm is predicted by a twin fitted without it, and each held-out scenario by the fits of
    the other scenarios. Errors are the absolute log ratio of twin to live (0.1 is about 10 %).
    With --twin nothing is fitted: all recordings are compared with the given twins. After an
    interruption the same command resumes with the finished fits.

    With --results nothing is run: finished comparisons of the same arms, live and on the twin, are
    laid beside each other (ranking.json, ranking.html).
    """
    if results:
        _rank(results, out, as_json=as_json)
        return
    from stallward.evaluation.fidelity.fits import Fits  # noqa: PLC0415
    from stallward.evaluation.fidelity.measure import measure_fidelity  # noqa: PLC0415
    from stallward.evaluation.fidelity.page import write_page  # noqa: PLC0415
    from stallward.evaluation.fidelity.table import fidelity_rows, signal_rows  # noqa: PLC0415
    from stallward.evaluation.results.serialise import save, to_json  # noqa: PLC0415
    from stallward.training.parallel.choose import open_executor  # noqa: PLC0415
    from stallward.training.pipeline.outputs import check_writable  # noqa: PLC0415
    from stallward.training.pipeline.train import load_twins  # noqa: PLC0415

    check_writable(out)
    twins = load_twins(twin, None) if twin else ()
    # Interrupted measurements with other options keep their fits in other directories.
    selection = "-".join(quote(name, safe="") for name in (scenario, arm) if name) or "all"
    directory = None if twins else out / f"fits-{selection}-{generations}-{seed}"
    fits = Fits(generations=generations, seed=seed, directory=directory)
    with open_executor(ray, storage, out) as executor, output.progress("fidelity") as report:
        result = measure_fidelity(
            recordings,
            fits=fits,
            scenario=scenario,
            arm=arm,
            twins=twins,
            executor=executor,
            report=report,
        )
        out.mkdir(parents=True, exist_ok=True)
        save(out / "fidelity.json", result)
        write_page(result, out / "fidelity.html")
        fits.remove()
    if as_json:
        output.print_json(to_json(result))
        return
    unseen = result.left_out_scenarios
    for title, table in (("", result.table), ("Scenarios that no fit has seen:", unseen)):
        if table is None:
            continue
        output.line(title)
        headers, rows, notes = fidelity_rows(table)
        output.table(headers, rows)
        output.line()
        output.table(*signal_rows(table))
        output.line()
        for text in notes:
            output.line(text)
    output.line(f"{out / 'fidelity.json'}  {out / 'fidelity.html'}")


def _rank(results: list[Path], out: Path, *, as_json: bool) -> None:
    """Lay comparisons on twins beside live ones of the same arms."""
    from stallward.evaluation.fidelity.ranking.measure import measure_ranking  # noqa: PLC0415
    from stallward.evaluation.fidelity.ranking.show import (  # noqa: PLC0415
        arm_table,
        ranking_notes,
        scenario_table,
        write_ranking_page,
        wrong_table,
    )
    from stallward.evaluation.results.serialise import save, to_json  # noqa: PLC0415
    from stallward.training.pipeline.outputs import check_writable  # noqa: PLC0415

    check_writable(out)
    result = measure_ranking(results)
    out.mkdir(parents=True, exist_ok=True)
    save(out / "ranking.json", result)
    write_ranking_page(result, out / "ranking.html")
    if as_json:
        output.print_json(to_json(result))
        return
    for table in (scenario_table(result), arm_table(result), wrong_table(result)):
        if table.rows:
            output.table(table.headers, table.rows)
            output.line()
    for text in ranking_notes(result):
        output.line(text)
    output.line(f"{out / 'ranking.json'}  {out / 'ranking.html'}")
