"""The option that says which latency target a run has."""

from __future__ import annotations

from typing import Annotated

import typer

from stallward.env.scenario.scenario import Target

TargetOption = Annotated[
    Target,
    typer.Option(help="The latency target: stated by the scenario, or tight (1.5 x p99 ample)."),
]
