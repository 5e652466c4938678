"""Options that choose among recordings."""

from __future__ import annotations

from typing import Annotated

import typer

from stallward.env.recording.stored import Selection, days_of

Places = Annotated[
    list[str] | None,
    typer.Argument(help="Recordings, directories of them, or catalogues (a path or a URL)."),
]
OfScenario = Annotated[str, typer.Option("--scenario", help="Only this scenario.")]
OfArm = Annotated[
    str, typer.Option("--recorded-arm", help="Only recordings of this arm, as it was named.")
]
OfNode = Annotated[str, typer.Option("--node", help="Only recordings of this node.")]
OfDays = Annotated[
    str,
    typer.Option("--days", metavar="FROM..TO", help="Only recordings of these days (UTC)."),
]


def selection_of(scenario: str, arm: str, node: str, days: str) -> Selection:
    """The selection that the options make.

    Raises:
        UsageError: If ``days`` names none.
    """
    first, last = days_of(days) if days else (None, None)
    return Selection(scenario=scenario, arm=arm, node=node, first_day=first, last_day=last)
