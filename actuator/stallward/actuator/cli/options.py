"""Options that several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from stallward.agent.errors import UsageError

DEFAULT_CONFIG: Final = Path("/etc/stallward/stallward.toml")
LONGEST_S = 7 * 86400.0
"""The longest time in seconds that an option takes."""

ConfigFile = Annotated[Path, typer.Option(help="The daemon's TOML file.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead.")]
Seed = Annotated[
    int, typer.Option(min=0, max=2**31 - 1, help="Everything random follows from it.")
]


def check_config(config: Path) -> None:
    """Refuse a configuration file that does not exist.

    Raises:
        UsageError: If it does not exist.
    """
    if not config.is_file():
        raise UsageError(
            f"There is no configuration {config}.",
            next_step="`stallward init` writes one; --config names another.",
        )
