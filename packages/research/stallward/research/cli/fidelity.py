"""``stallward fidelity``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from stallward.actuator.cli import output
from stallward.actuator.cli.options import Json, Seed
from stallward.evaluation.cli.cluster_options import Ray, Storage
from stallward.evaluation.results.serialise import save, to_json
from stallward.research.fidelity.fits import Fits
from stallward.research.fidelity.measure import measure_fidelity
from stallward.research.fidelity.page import write_page
from stallward.research.fidelity.ranking.measure import measure_ranking
from stallward.research.fidelity.ranking.show import (
    arm_table,
    ranking_notes,
    scenario_table,
    write_ranking_page,
    wrong_table,
)
from stallward.research.fidelity.table import fidelity_rows, signal_rows
from stallward.training.parallel.choose import open_executor
from stallward.training.pipeline.outputs import check_writable
from stallward.training.pipeline.train import load_twins


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
        shown, notes = fidelity_rows(table)
        for each in (shown, signal_rows(table)):
            output.table(each.headers, each.rows)
            output.line()
        for text in notes:
            output.line(text)
    output.line(f"{out / 'fidelity.json'}  {out / 'fidelity.html'}")


def _rank(results: list[Path], out: Path, *, as_json: bool) -> None:
    """Lay comparisons on twins beside live ones of the same arms."""
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
