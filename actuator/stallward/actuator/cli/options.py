"""Options that several commands take."""

from __future__ import annotations

from typing import Annotated

import typer

LONGEST_S = 7 * 86400.0
"""The longest time in seconds that an option takes."""

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead.")]
Seed = Annotated[
    int, typer.Option(min=0, max=2**31 - 1, help="Everything random follows from it.")
]
