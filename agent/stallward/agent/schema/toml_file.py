"""Reads TOML that a person wrote, within bounds; every fault is the same kind of error."""

from __future__ import annotations

import tomllib
from typing import Any, Final

_MAX_CHARACTERS: Final = 1 << 20
_MAX_DOTS: Final = 100
"""The most dots on one line: the parser's memory grows with the square of the parts of a dotted
key."""


def read_toml(text: str) -> dict[str, Any]:
    """The table of a TOML file.

    Raises:
        ValueError: If the text is not TOML, or larger than any file that a person writes.
    """
    if len(text) > _MAX_CHARACTERS:
        raise ValueError(f"it has {len(text)} characters, more than {_MAX_CHARACTERS}")
    for number, line in enumerate(text.split("\n"), start=1):
        if line.count(".") > _MAX_DOTS:
            raise ValueError(f"line {number} has more than {_MAX_DOTS} dots")
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("tables or lists are nested too deeply") from error
