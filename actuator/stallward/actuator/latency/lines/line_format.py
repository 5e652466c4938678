"""The format of a latency source's lines: fields by column or by regular expression."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Final

from stallward.actuator.errors import ConfigError
from stallward.actuator.latency.config import FAILED_STATUS, FAILED_WORDS, OK_WORDS
from stallward.actuator.latency.lines.durations import latency_s, parse_number
from stallward.actuator.latency.lines.fields import LineFields, LineSplitter
from stallward.actuator.latency.lines.outcome import Outcome

LINE_BYTES: Final = 4096
"""A longer line is malformed."""
PATTERN_LINE_BYTES: Final = 2048
"""The same where a pattern is searched for: the time may grow with the square of the length."""
TOO_LONG: Final = "longer than a line may be"
_FIELDS: Final = ("start", "end", "latency", "ok", "end_us", "unit")
_MOST_MS: Final = 1e9


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
    """Field that says whether the request was answered, by a word or a status code; by default a
    group of the pattern that is named ``ok``."""
    end_us: str | None = None
    """Field of microseconds to be added to ``end``."""
    unit: str | None = None
    """Field of the latency's unit; by default a group of the pattern that is named ``unit``."""
    failed_words: tuple[str, ...] = FAILED_WORDS
    """Words for a request that failed: as ``ok``, or in the place of the latency or completion."""
    ok_words: tuple[str, ...] = OK_WORDS
    """Words as ``ok`` for a request that was answered."""
    failed_status: tuple[str, ...] = FAILED_STATUS
    """Status codes as ``ok`` of requests that failed, and ranges of them."""
    pattern: str | None = None
    """Regular expression with named groups, searched in each line."""
    separator: str | None = None
    """What separates columns; ``None`` means white space."""
    time_unit_s: float = 1.0
    """Seconds per unit of ``start`` and ``end``."""
    latency_unit_s: float = 1.0
    """Seconds per unit of a ``latency`` that carries no unit of its own."""
    _regex: re.Pattern[str] | None = field(init=False, default=None, repr=False, compare=False)
    _splitter: LineSplitter = field(init=False, repr=False, compare=False)
    _outcome: Outcome = field(init=False, repr=False, compare=False)

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
        outcome = Outcome(self.failed_words, self.ok_words, self.failed_status)
        object.__setattr__(self, "_outcome", outcome)
        object.__setattr__(self, "_splitter", LineSplitter(self.separator, None))
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
        splitter = LineSplitter(None, regex)
        object.__setattr__(self, "_regex", regex)
        object.__setattr__(self, "_splitter", splitter)
        for name in ("unit", "ok"):
            object.__setattr__(self, name, splitter.field(getattr(self, name), name))

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
        fields = self._splitter.split(line)
        word = None if self.ok is None else fields.whole(self.ok)
        if word is not None and not self._outcome.is_answered(word):
            return None
        value = self._between_ms(fields) if self.latency is None else self._given_ms(fields)
        if value is not None and not 0.0 <= value < _MOST_MS:
            raise ValueError(f"not a latency: {value} ms")
        return value

    def _given_ms(self, fields: LineFields) -> float | None:
        """Return the latency that is written; ``None`` for a word that says it failed."""
        assert self.latency is not None
        text = _there(fields.whole(self.latency, with_unit=True))
        if self._outcome.is_failure(text):
            return None
        unit = None if self.unit is None else fields.word(self.unit)
        return latency_s(text, self.latency_unit_s, unit=unit) * 1e3

    def _between_ms(self, fields: LineFields) -> float | None:
        """Return the time between two times; ``None`` for a word that says it failed."""
        assert self.start is not None
        assert self.end is not None
        # Where the time is split, each part is a number of its own.
        text = _there(fields.whole(self.end) if self.end_us is None else fields.word(self.end))
        if self._outcome.is_failure(text):
            return None
        start = parse_number(_there(fields.whole(self.start)))
        value = (parse_number(text) - start) * self.time_unit_s * 1e3
        if self.end_us is not None:
            value += parse_number(_there(fields.word(self.end_us))) * 1e-3
        return value


def _there(text: str | None) -> str:
    if text is None:
        raise ValueError("a field is missing")
    return text
