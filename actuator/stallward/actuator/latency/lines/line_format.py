"""The format of a latency source's lines: fields by column or by regular expression."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from stallward.actuator.errors import ConfigError
from stallward.actuator.latency.config import FAILED_WORDS
from stallward.actuator.latency.lines.columns import columns
from stallward.actuator.latency.lines.durations import latency_s, parse_number

LINE_BYTES: Final = 4096
"""A longer line is malformed."""
PATTERN_LINE_BYTES: Final = 2048
"""The same where a pattern is searched for: the time may grow with the square of the length."""
TOO_LONG: Final = "longer than a line may be"
_FIELDS: Final = ("start", "end", "latency", "ok", "end_us", "unit")
_UNIT_GROUP: Final = "unit"
_FALSE: Final = frozenset({"0", "false", "no", ""})
_MOST_MS: Final = 1e9


def says_answered(word: str) -> bool:
    """Whether the field ``ok`` of a line says that the request was answered."""
    return word.strip().lower() not in _FALSE


def says_failed(word: str, failed_words: frozenset[str]) -> bool:
    """Whether a word in the place of a latency says that the request failed."""
    return word.strip().lower() in failed_words


def lower_words(words: tuple[str, ...]) -> frozenset[str]:
    """Return words in the form in which :func:`says_failed` compares them."""
    return frozenset(word.strip().lower() for word in words)


def unit_field(unit: str | None, pattern: re.Pattern[str]) -> str | None:
    """Return the field of the latency's unit: the given one, or a group that is named ``unit``."""
    return _UNIT_GROUP if unit is None and _UNIT_GROUP in pattern.groupindex else unit


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFormat:
    """The place of the latency in a line.

    A field is a column (from 0) or, with ``pattern``, a named group. Either ``latency``, or
    ``start`` and ``end`` are needed.

    Raises:
        ConfigError: If the fields do not fit together.
    """

    start: str | None = None
    """Field of the scheduled arrival."""
    end: str | None = None
    """Field of the completion."""
    latency: str | None = None
    """Field of the latency; it may carry its unit, as ``1m2.5s``."""
    ok: str | None = None
    """Field that says whether the request was answered; a line with ``0``, ``false`` or ``no``
    there is no completion."""
    end_us: str | None = None
    """Field of microseconds to be added to ``end``."""
    unit: str | None = None
    """Field of the latency's unit; by default a group of the pattern that is named ``unit``."""
    failed_words: tuple[str, ...] = FAILED_WORDS
    """Words in the place of the latency or the completion that say that the request failed."""
    pattern: str | None = None
    """Regular expression with named groups, searched in each line."""
    separator: str | None = None
    """What separates columns; ``None`` means white space."""
    time_unit_s: float = 1.0
    """Seconds per unit of ``start`` and ``end``."""
    latency_unit_s: float = 1.0
    """Seconds per unit of a ``latency`` that carries no unit of its own."""
    _regex: re.Pattern[str] | None = field(init=False, default=None, repr=False, compare=False)
    _failed: frozenset[str] = field(init=False, default=frozenset(), repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.latency is None and (self.start is None or self.end is None):
            raise ConfigError(
                "A latency source needs the field 'latency', or 'start' and 'end'.",
                next_step="Name the columns, counted from 0.",
            )
        for name in ("time_unit_s", "latency_unit_s"):
            if not 0.0 < getattr(self, name) < math.inf:
                raise ConfigError(f"{name} of a latency source must be positive and finite.")
        if self.separator == "":
            raise ConfigError("The separator of a latency source is empty.")
        object.__setattr__(self, "_failed", lower_words(self.failed_words))
        given = [(n, getattr(self, n)) for n in _FIELDS if getattr(self, n) is not None]
        if self.pattern is None:
            for name, value in given:
                if not (value.isascii() and value.isdigit()):
                    raise ConfigError(
                        f"{name} = {value!r} of a latency source is not a column.",
                        next_step="Give a number from 0, or a pattern with a group of that name.",
                    )
            return
        try:
            regex = re.compile(self.pattern)
        except (re.error, RecursionError, OverflowError) as error:
            raise ConfigError(f"The pattern {self.pattern!r} is not valid ({error}).") from error
        absent = [value for _, value in given if value not in regex.groupindex]
        if absent:
            raise ConfigError(
                f"The pattern {self.pattern!r} has no group named {absent[0]!r}.",
                next_step=f"Write (?P<{absent[0]}>...) around it.",
            )
        object.__setattr__(self, "_regex", regex)
        object.__setattr__(self, "unit", unit_field(self.unit, regex))

    @property
    def searches(self) -> bool:
        """Whether a line is searched for a pattern, which may take long."""
        return self._regex is not None

    @property
    def line_bytes(self) -> int:
        """A longer line is malformed."""
        return LINE_BYTES if self._regex is None else PATTERN_LINE_BYTES

    def latency_ms(self, line: str) -> float | None:
        """Return the latency of the request in ``line``; ``None`` if the request failed.

        Raises:
            ValueError: If the line is not of this format.
        """
        try:
            return self._latency_ms(line)
        except (LookupError, TypeError, AttributeError) as error:  # no column, or an empty group
            raise ValueError("a field is missing") from error

    def _latency_ms(self, line: str) -> float | None:
        read: Callable[[str], str]
        if self._regex is not None:
            match = self._regex.search(line)
            if match is None:
                raise ValueError("the pattern does not match")
            read = match.group
        else:
            match, words = None, columns(line, self.separator)

            def read(name: str) -> str:
                return words[int(name)]

        if self.ok is not None and not says_answered(str(read(self.ok))):
            return None
        if self.latency is not None:
            text = read(self.latency)
            if says_failed(text, self._failed):
                return None
            unit = read(self.unit) if self.unit is not None else None
            span = match.span(self.latency) if match is not None else None
            value = latency_s(text, self.latency_unit_s, unit=unit, line=line, span=span) * 1e3
        else:
            assert self.start is not None
            assert self.end is not None
            text = read(self.end)
            if says_failed(text, self._failed):
                return None
            value = (parse_number(text) - parse_number(read(self.start))) * self.time_unit_s * 1e3
            if self.end_us is not None:
                value += parse_number(read(self.end_us)) * 1e-3
        if not 0.0 <= value < _MOST_MS:
            raise ValueError(f"not a latency: {value} ms")
        return value
