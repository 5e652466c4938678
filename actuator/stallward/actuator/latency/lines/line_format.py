"""The format of a latency source's lines: fields by column or by regular expression."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Final

from stallward.actuator.errors import ConfigError

_FIELDS: Final = ("start", "end", "latency", "ok", "end_us")
_FALSE: Final = frozenset({"0", "false", "no", ""})


def says_answered(word: str) -> bool:
    """Whether the field ``ok`` of a line says that the request was answered."""
    return word.strip().lower() not in _FALSE


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
    """Field of the latency."""
    ok: str | None = None
    """Field that says whether the request was answered; a line with ``0``, ``false`` or ``no``
    there is no completion."""
    end_us: str | None = None
    """Field of microseconds to be added to ``end``."""
    pattern: str | None = None
    """Regular expression with named groups, searched in each line."""
    separator: str | None = None
    """What separates columns; ``None`` means white space."""
    time_unit_s: float = 1.0
    """Seconds per unit of ``start`` and ``end``."""
    latency_unit_s: float = 1.0
    """Seconds per unit of ``latency``."""
    _regex: re.Pattern[str] | None = field(init=False, default=None, repr=False, compare=False)

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

    def latency_ms(self, line: str) -> float | None:
        """Return the latency of the request in ``line``; ``None`` if the request failed.

        Raises:
            ValueError: If the line is not of this format.
        """
        try:
            return self._latency_ms(line)
        except (LookupError, TypeError) as error:  # no such column, or a group without a match
            raise ValueError(f"a field is missing: {line[:80]!r}") from error

    def _latency_ms(self, line: str) -> float | None:
        if self._regex is not None:
            match = self._regex.search(line)
            if match is None:
                raise ValueError("the pattern does not match")
            read = match.group
        else:
            words = line.split(self.separator)

            def read(name: str) -> str:  # type: ignore[misc]
                return words[int(name)]

        if self.ok is not None and not says_answered(str(read(self.ok))):
            return None
        if self.latency is not None:
            value = float(read(self.latency)) * self.latency_unit_s * 1e3
        else:
            assert self.start is not None
            assert self.end is not None
            value = (float(read(self.end)) - float(read(self.start))) * self.time_unit_s * 1e3
            if self.end_us is not None:
                value += float(read(self.end_us)) * 1e-3
        if not 0.0 <= value < 1e9:
            raise ValueError(f"not a latency: {value} ms")
        return value
