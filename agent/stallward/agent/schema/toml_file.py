"""Reading TOML that somebody wrote: bounded, and with one kind of error."""

from __future__ import annotations

import tomllib
from typing import Any, Final

_LONGEST: Final = 1 << 20
_MOST_DOTS: Final = 100
"""On one line: the parser's memory grows with the square of the parts of a dotted key."""


def read_toml(text: str) -> dict[str, Any]:
    """The table of a TOML file.

    Raises:
        ValueError: If it is none, or far from any that a person writes.
    """
    if len(text) > _LONGEST:
        raise ValueError(f"it has {len(text)} characters, more than {_LONGEST}")
    for number, line in enumerate(text.split("\n"), start=1):
        if line.count(".") > _MOST_DOTS:
            raise ValueError(f"line {number} has more than {_MOST_DOTS} dots")
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("tables or lists are nested too deeply") from error
