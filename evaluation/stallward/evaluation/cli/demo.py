"""``stallward demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stallward.actuator.cli import output
from stallward.actuator.cli.options import Seed
from stallward.evaluation.demo.run import DemoSettings, run_demo


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
    run_demo(
        DemoSettings(out=out, scenario=scenario, minutes=minutes, twin=twin, seed=seed),
        say=output.line,
        progress=output.progress,
    )
