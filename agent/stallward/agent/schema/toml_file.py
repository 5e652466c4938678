"""Reads TOML that a person wrote, within bounds; every fault is the same kind of error."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, Final

from stallward.agent.schema.text_file import read_text_file

_MAX_CHARACTERS: Final = 1 << 20
_MAX_DOTS: Final = 100
"""The most dots on one line: the parser's memory grows with the square of the parts of a dotted
key."""
_PLACE: Final = re.compile(r"\(at line (\d+), column \d+\)$")
_MARK: Final = "\ufeff"
"""The byte-order mark, which is no part of the text that it stands before."""
_INVISIBLE: Final = f"\u00a0\u200b\u200c\u200d\u2060{_MARK}"
_QUOTES: Final = "\u2018\u2019\u201c\u201d\u201e\u00ab\u00bb"


def read_toml_file(path: Path) -> dict[str, Any]:
    """The table of a TOML file.

    Raises:
        OSError: If the file cannot be read.
        ValueError: As by :func:`read_toml`, or if the file is no text in UTF-8.
    """
    return read_toml(read_text_file(path))


def read_toml(text: str) -> dict[str, Any]:
    """The table of a TOML text.

    Raises:
        ValueError: If the text is not TOML, or larger than any file that a person writes.
    """
    text = text.removeprefix(_MARK)
    if len(text) > _MAX_CHARACTERS:
        raise ValueError(f"it has {len(text)} characters, more than {_MAX_CHARACTERS}")
    for number, line in enumerate(text.split("\n"), start=1):
        if line.count(".") > _MAX_DOTS:
            raise ValueError(f"line {number} has more than {_MAX_DOTS} dots")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        cause = _cause(text, str(error))
        if cause:
            raise ValueError(cause) from error
        raise
    except RecursionError as error:
        raise ValueError("tables or lists are nested too deeply") from error


def _cause(text: str, fault: str) -> str:
    """What a person did in the line at which the parser stopped; empty if that is not clear."""
    place = _PLACE.search(fault)
    if place is None:
        return ""
    number = int(place.group(1))
    line = text.split("\n")[number - 1]
    for character in line:
        if character in _INVISIBLE:
            code = f"U+{ord(character):04X}"
            return f"line {number} holds the invisible character {code}; type the line anew"
        if character in _QUOTES:
            return f"line {number} has typographic quotes; write plain ones"
    if "\\" in line and '"' in line:
        return (
            f"in line {number} a backslash begins an escape, as always in double quotes; "
            "write the value in single quotes, where it is an ordinary character"
        )
    return ""
