"""The commands that ``stallward`` finds by the entry points of this package.

Their modules must import quickly: functions import what they use.
"""

from __future__ import annotations

from collections.abc import Callable

import typer

from stallward.lens.cli import describe, plot, profile, resident, workingset
from stallward.lens.cli.trace import command


def _command(function: Callable[..., None], example: str) -> typer.Typer:
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(epilog=f"Example: stallward {example}")(function)
    return app


WORKINGSET = _command(workingset.workingset, "workingset -- sqlite3 :memory: 'select 1'")
TRACE = _command(command.trace, "trace process --out trace.parquet -- sqlite3 :memory:")
PLOT = _command(plot.plot, "plot trace.parquet")
RESIDENT = _command(resident.resident, "resident --pid 4711 --window 1 --seconds 60")
PROFILE = _command(profile.profile, "profile --scenario detector-anon --seconds 30")
DESCRIBE_TRACE = _command(describe.trace, "describe trace")
