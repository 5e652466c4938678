"""The commands that ``stallward`` finds by the entry points of this package.

Their modules must import quickly: functions import what they use.
"""

from __future__ import annotations

from collections.abc import Callable

import typer

from stallward.fleet.cli import rollout, table


def _command(function: Callable[..., None], example: str) -> typer.Typer:
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(epilog=f"Example: stallward {example}")(function)
    return app


FLEET = _command(table.fleet, "ctl fleet --nodes nodes.toml --problems")
ROLLOUT = _command(rollout.rollout, "ctl rollout build/policy.onnx --nodes nodes.toml")
RECALL = _command(
    rollout.recall, "ctl recall --state rollout-0123456789ab.jsonl --nodes nodes.toml"
)
