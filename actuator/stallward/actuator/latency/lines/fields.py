"""The fields of a line: columns, or the groups of a pattern. Pure."""

from __future__ import annotations

import re
from typing import Final

from stallward.actuator.latency.lines.durations import whole_number

# ---------- Splits a line into columns, as they are written with quotes by CSV writers.

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


class LineFields:
    """The fields of one line.

    Args:
        line: The line.
        match: What a pattern has found in it; ``None`` where its fields are columns.
        words: Its columns.
    """

    __slots__ = ("_line", "_match", "_words")

    def __init__(self, line: str, match: re.Match[str] | None, words: list[str]) -> None:
        self._line, self._match, self._words = line, match, words

    def word(self, name: str) -> str | None:
        """Return a field as it stands there; ``None`` for a group that has no part in the match.

        Raises:
            ValueError: If the line has no such column.
        """
        if self._match is not None:
            text: str | None = self._match[name]
            return text
        if int(name) >= len(self._words):
            raise ValueError("a field is missing")
        return self._words[int(name)]

    def whole(self, name: str, *, with_unit: bool = False) -> str | None:
        """Return a field, and the whole number where the pattern has found only a part of it.

        Raises:
            ValueError: If the line has no such column, or something is attached to the number.
        """
        if self._match is None or self._match[name] is None:
            return self.word(name)
        return whole_number(self._line, *self._match.span(name), with_unit=with_unit)


class LineSplitter:
    """Splits lines into their fields.

    Args:
        separator: What separates columns; ``None`` means white space.
        pattern: A pattern whose groups are the fields, in place of columns.
    """

    def __init__(self, separator: str | None, pattern: re.Pattern[str] | None) -> None:
        self._separator, self._pattern = separator, pattern

    def split(self, line: str) -> LineFields:
        """Return the fields of a line.

        Raises:
            ValueError: If the pattern does not match.
        """
        if self._pattern is None:
            return LineFields(line, None, columns(line, self._separator))
        match = self._pattern.search(line)
        if match is None:
            raise ValueError("the pattern does not match")
        return LineFields(line, match, [])

    def field(self, given: str | None, name: str) -> str | None:
        """Return a field that is given, or else the group of that name if there is one."""
        groups = {} if self._pattern is None else self._pattern.groupindex
        return name if given is None and name in groups else given
