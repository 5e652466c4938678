"""Splits a line into columns, as they are written with quotes by CSV writers. Pure."""

from __future__ import annotations

from typing import Final

_QUOTE: Final = '"'


def columns(line: str, separator: str | None) -> list[str]:
    """Return the columns of a line, without quotes around them.

    With a separator, one within quotes is part of its column: load generators quote the message of
    a failure, which may hold the separator, and all columns behind it would be shifted. Where
    white space separates, quotes group nothing: access logs quote a request of several words, of
    which each is a column.

    Args:
        line: The line.
        separator: What separates columns; ``None`` means white space.
    """
    parts = line.split(separator)
    if _QUOTE not in line or (separator is not None and _QUOTE in separator):
        return parts
    if separator is not None:
        parts = _joined(parts, separator)
    return [_unquoted(part) for part in parts]


def _joined(parts: list[str], separator: str) -> list[str]:
    """Put together what was split within quotes; the parts as they are if a quote has no end."""
    whole: list[str] = []
    begun: list[str] = []
    for part in parts:
        if begun:
            begun.append(part)
            if part.count(_QUOTE) % 2:
                whole.append(separator.join(begun))
                begun = []
        elif part.lstrip().startswith(_QUOTE) and part.count(_QUOTE) % 2:
            begun = [part]
        else:
            whole.append(part)
    return parts if begun else whole


def _unquoted(part: str) -> str:
    word = part.strip()
    if len(word) > 1 and word[0] == word[-1] == _QUOTE:
        return word[1:-1].replace(2 * _QUOTE, _QUOTE)
    return part
