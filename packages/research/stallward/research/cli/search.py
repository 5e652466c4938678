"""``stallward search``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stallward.actuator.cli import output
from stallward.actuator.cli.options import Seed
from stallward.evaluation.cli.cluster_options import Ray, Storage
from stallward.evaluation.cli.learn import JudgedOn, Synthetic, TrainedOn
from stallward.research.search.space import load_space
from stallward.research.search.trials import comparison, table
from stallward.training.parallel.choose import kept_at, open_executor


def search(
    space: Annotated[Path, typer.Argument(help="File of what is tried, how long, and who stops.")],
    twin: TrainedOn = None,
    out: Annotated[Path, typer.Option(help="Directory of the search, new or interrupted.")] = Path(
        "build/search"
    ),
    judged_on: JudgedOn = None,
    composed: Synthetic = 3,
    ray: Ray = None,
    storage: Storage = None,
    seed: Seed = 1,
) -> None:
    """Search recipes for `stallward train` by Optuna.

    Each trial is a short training. Trials are judged like seeds, and the first one is the recipe
    without changes. An interrupted search goes on with the same command. OUT has the table of
    trials and the best recipe.
    """
    from stallward.research.search.search import search_recipes  # noqa: PLC0415 - torch takes 3 s

    wanted = load_space(space)
    with (
        kept_at(storage, out) as store,
        open_executor(ray, None, out) as executor,
        output.progress("search") as report,
    ):
        found = search_recipes(
            wanted,
            twin or ["default"],
            out=out,
            judged_on=judged_on or ["default"],
            synthetic=composed,
            seed=seed,
            executor=executor,
            report=report,
            store=store,
        )
    output.table(*table(found.log))
    output.note(comparison(found.log))
    output.line(f"{found.recipe}")
