"""The commands that ``stallward`` finds by the entry points of this package.

Their modules must import quickly: functions import what they use.
"""

from __future__ import annotations

from collections.abc import Callable

import typer

from stallward.research.cli import off_policy, oracle, search


def _command(function: Callable[..., None], example: str) -> typer.Typer:
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(epilog=f"Example: stallward {example}")(function)
    return app


SEARCH = _command(search.search, "search space.toml --out build/search")
ORACLE = _command(oracle.oracle, "oracle detector-anon")
OPE = _command(off_policy.ope, "ope recordings --arms ppo")
EXPLAIN = _command(off_policy.explain, "explain default recordings/detector-anon-none-s1 --at 20")
MINARI = _command(
    off_policy.minari,
    "minari recordings/detector-anon-excite-s1 --name stallward/detector-anon/excite-v0",
)
