"""Numbers and durations as programs write them into their logs. Pure."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, fields
from typing import Final

from stallward.actuator.errors import ConfigError
from stallward.actuator.latency.config import LineLayout, LinesLatency

UNIT_S: Final = {
    **dict.fromkeys(("d", "day", "days"), 86400.0),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600.0),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("ms", "msec", "msecs", "millis", "millisecond", "milliseconds"), 1e-3),
    # The micro sign has two code points, and Greek keyboards write the other one.
    **dict.fromkeys(("us", "\u00b5s", "\u03bcs", "usec", "usecs", "micros"), 1e-6),
    **dict.fromkeys(("microsecond", "microseconds"), 1e-6),
    **dict.fromkeys(("ns", "nsec", "nsecs", "nanos", "nanosecond", "nanoseconds"), 1e-9),
}
"""The seconds in each unit, by every word for it."""
_SPACE: Final = "[ \u00a0\u2009\u202f]"
"""One space, which may be one of those that keep a number and its unit on a line."""
_BROKEN: Final = "\ufffd"
"""A micro sign in another encoding is read as this."""
_LETTERS: Final = rf"[^\W\d_{_BROKEN}]+"
_NUMBER: Final = r"[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?"
_PART: Final = re.compile(rf"({_NUMBER}){_SPACE}?({_LETTERS}){_SPACE}?")
_UNIT: Final = rf"(?:{'|'.join(sorted(UNIT_S, key=len, reverse=True))})(?!{_LETTERS})"
_AMOUNT: Final = rf"(?:{_NUMBER})(?:{_UNIT}|{_SPACE}{_UNIT}(?![=:]))?"
_WHOLE: Final = re.compile(rf"[+-]?(?:(?:(?:{_NUMBER}){_UNIT})+(?![0-9.])|{_AMOUNT})")
"""A number with the unit that belongs to it, or a duration of several such parts."""
_BARE: Final = re.compile(rf"[+-]?(?:{_NUMBER})")
_ATTACHED: Final = frozenset("0123456789.+-eEdhmnsu\u00b5\u03bc" + _BROKEN)
"""What the part of a number or of a duration before the one that was found may consist of."""
_EARLIER_PARTS: Final = re.compile(rf"(?:(?:{_NUMBER}){_UNIT}{_SPACE})+$")
_LATER_PARTS: Final = re.compile(rf"(?:{_SPACE}(?:{_NUMBER}){_UNIT})+(?![=:])")
_LOOK_BACK: Final = 40
"""How many characters a number or a duration may have before the part that was found."""
_BOUNDARY: Final = frozenset("\"'`\u2018\u2019\u201c\u201d\u00ab\u00bb()[]{}<>,;:|/\\=&#@^~!?*")
"""The quotes, brackets and separators that may stand around a number."""
_CLOCK_BEHIND: Final = re.compile(r":[0-5][0-9](?![0-9])")
_CLOCK_BEFORE: Final = re.compile(r"(?<=[0-9]):$")
_CLOCK_TAIL: Final = re.compile(r"[0-5][0-9](?![0-9])")
_COMMA_BEHIND: Final = re.compile(rf",[0-9]+(?:\.[0-9]+)?{_SPACE}?{_UNIT}")
_BROKEN_BEHIND: Final = re.compile(rf"{_SPACE}{_BROKEN}s?\b")
_OTHER_BEHIND: Final = {":": _CLOCK_BEHIND, ",": _COMMA_BEHIND} | dict.fromkeys(
    _SPACE[1:-1], _BROKEN_BEHIND
)
"""What makes a number a part of another one, by the character behind it."""


def parse_number(text: str) -> float:
    """Return a decimal number.

    Unlike ``float`` it takes no underscores, no digits of other scripts, no infinity and no NaN.

    Raises:
        ValueError: If ``text`` is none.
    """
    value = float(text)
    if "_" in text or not (text.isascii() and math.isfinite(value)):
        raise ValueError(f"not a number: {text[:40]!r}")
    return value


def duration_s(text: str) -> float:
    """Return a duration with its units, such as ``1m2.5s``, ``850.2us`` or ``12 ms``, in seconds.

    Raises:
        ValueError: If it is none: a unit is unknown, missing, or not smaller than the one before.
    """
    word, at, total_s, last_s = text.strip(), 0, 0.0, math.inf
    while at < len(word):
        part = _PART.match(word, at)
        unit_s = UNIT_S.get(part[2]) if part else None
        part_s = float(part[1]) * unit_s if part and unit_s else math.inf
        if part is None or unit_s is None or unit_s >= last_s or part_s > last_s:
            raise ValueError(f"not a duration: {word[:40]!r}")
        total_s += part_s
        at, last_s = part.end(), unit_s
    if not word:
        raise ValueError("there is no number")
    return total_s


def latency_s(text: str, unit_s: float, *, unit: str | None) -> float:
    """Return a latency in seconds. A unit of its own counts, or else one in a field beside it.

    Args:
        text: The latency; where a pattern has found it, what :func:`whole_number` returns.
        unit_s: The seconds per unit of a latency that has no unit of its own.
        unit: The field that has the unit; ``None`` or empty if there is none.

    Raises:
        ValueError: If it is neither a number nor a duration, or its unit is not known.
    """
    word = text.strip()
    if word[-1:].isalpha():
        return duration_s(word)
    unit = (unit or "").strip()
    if unit and unit not in UNIT_S:
        raise ValueError(f"not a unit: {unit[:40]!r}")
    return parse_number(word) * (UNIT_S[unit] if unit else unit_s)


def whole_number(line: str, start: int, end: int, *, with_unit: bool) -> str:
    """Return the whole of the number that a pattern has found a part of.

    A pattern such as ``took=([0-9.]+)`` finds ``1.05`` in ``took=1.05s``, ``1`` in ``took=1m2s``
    and ``1.2345`` in ``took=1.2345e-05``, which would be off by powers of ten, and nobody would
    see it. So what was found counts only where the end of the line, white space, a quote, a
    bracket or a separator stands right around it.

    Args:
        line: The whole line.
        start: Where the pattern has found something.
        end: The end of that.
        with_unit: Whether it may have a unit, attached or behind one space.

    Returns:
        The number, with its unit; what was found as it is if that is no number.

    Raises:
        ValueError: If something else is attached to the number.
    """
    found = line[start:end].strip()
    form = _WHOLE if with_unit else _BARE
    if form.fullmatch(found) is None:
        return found
    start = line.index(found, start)
    end = start + len(found)
    whole = form.match(line, start)
    if start and line[start - 1] in _ATTACHED:
        whole = _longer(form, line, start, end)
    if whole is None or not (
        _is_around(line, whole.start() - 1) and _is_around(line, whole.end())
    ):
        raise ValueError("something is attached to the number")
    if not with_unit:
        return whole[0]
    if _is_other(line, whole):
        raise ValueError("the number is a part of another one")
    return _with_other_parts(line, whole) if whole[0][-1].isalpha() else whole[0]


def _longer(form: re.Pattern[str], line: str, start: int, end: int) -> re.Match[str] | None:
    """Return the number or the duration of which a piece of a line is the end."""
    begin, least = start, max(start - _LOOK_BACK, 0)
    while begin > least and line[begin - 1] in _ATTACHED:
        begin -= 1
    for first in range(begin, start + 1):
        whole = form.match(line, first)
        if whole is not None and whole.end() >= end:
            return whole
    return None


def _is_around(line: str, place: int) -> bool:
    """Whether what stands at a place does not belong to a number beside it."""
    if not 0 <= place < len(line):
        return True
    character = line[place]
    return character in _BOUNDARY or character.isspace() or not character.isprintable()


def _is_other(line: str, whole: re.Match[str]) -> bool:
    """Whether a number is a part of a time of day or of a number with commas.

    A comma also separates columns; it belongs to the number where a unit ends what is behind it.
    """
    begin, end = whole.span()
    before, behind = line[begin - 1 : begin] if begin else "", line[end : end + 1]
    if before == ":" and _CLOCK_TAIL.match(whole[0]) and _CLOCK_BEFORE.search(line, 0, begin):
        return True
    form = _OTHER_BEHIND.get(behind)
    return form is not None and form.match(line, end) is not None


def _with_other_parts(line: str, whole: re.Match[str]) -> str:
    """Return a duration with the parts beside it, as those of ``1m 2s``; else it alone."""
    earlier = _EARLIER_PARTS.search(line, max(whole.start() - _LOOK_BACK, 0), whole.start())
    later = _LATER_PARTS.match(line, whole.end())
    if earlier is None and later is None:
        return whole[0]
    together = f"{earlier[0] if earlier else ''}{whole[0]}{later[0] if later else ''}"
    try:
        duration_s(together)
    except ValueError:
        return whole[0]  # they are durations of their own
    return together


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


# ---------- Whether a line says that its request was answered. Pure
# Under overload many requests fail, and most of them at once. One that failed must never count as a
# fast one, so a word that is neither known for success nor for failure is malformed.

_ALWAYS_FAILED: Final = frozenset({"false", "no", ""})
_STATUS: Final = re.compile(r"\s*([0-9]{1,9})\s*(?:(-)\s*([0-9]{1,9})?\s*)?")


class Outcome:
    """Tells requests that failed from those that were answered.

    Args:
        failed_words: Words that mean a failure.
        ok_words: Words that mean success.
        failed_status: Status codes that mean a failure: ``499``, ``500-599`` or ``500-``.

    Raises:
        ConfigError: If ``failed_status`` has something else.
    """

    def __init__(
        self,
        failed_words: tuple[str, ...],
        ok_words: tuple[str, ...],
        failed_status: tuple[str, ...],
    ) -> None:
        self._failed = frozenset(map(_plain, failed_words))
        self._ok = frozenset(map(_plain, ok_words))
        try:
            self._ranges = tuple(map(parse_status, failed_status))
        except ValueError as error:
            raise ConfigError(
                f"failed_status of a latency source: {error}.",
                next_step='Write codes and ranges, such as ["499", "500-599"].',
            ) from error

    def is_failure(self, word: str) -> bool:
        """Whether a word in the place of a time or a latency says that the request failed."""
        return _plain(word) in self._failed

    def is_answered(self, word: str) -> bool:
        """Whether the field ``ok`` says that the request was answered.

        Raises:
            ValueError: If it says nothing that is known.
        """
        plain = _plain(word)
        if plain in _ALWAYS_FAILED or plain in self._failed:
            return False
        if plain in self._ok:
            return True
        number = parse_number(plain)
        return number > 0.0 and not any(low <= number <= high for low, high in self._ranges)


def _plain(word: str) -> str:
    return word.strip().lower()


def parse_status(text: str) -> tuple[float, float]:
    """Return the first and the last code of a range such as ``499``, ``500-599`` or ``500-``.

    Raises:
        ValueError: If it is none.
    """
    found = _STATUS.fullmatch(text)
    first = float(found[1]) if found else math.nan
    last = math.inf if found and found[2] else first
    if found and found[3]:
        last = float(found[3])
    if not first <= last:
        raise ValueError(f"{text!r} is not a range of status codes")
    return first, last


LINE_BYTES: Final = 4096
"""A longer line is malformed."""
PATTERN_LINE_BYTES: Final = 2048
"""The same where a pattern is searched for: the time may grow with the square of the length."""
TOO_LONG: Final = "longer than a line may be"
_FIELDS: Final = ("start", "end", "latency", "ok", "end_us", "unit")
_MOST_MS: Final = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFormat(LineLayout):
    """Reads the latency in a line; either ``latency``, or ``start`` and ``end`` are needed.

    Raises:
        ConfigError: If the fields do not fit together.
    """

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


def format_of(config: LinesLatency) -> LineFormat:
    """Return the format of the lines that a configuration describes.

    Raises:
        ConfigError: If it is not valid.
    """
    return LineFormat(**{one.name: getattr(config, one.name) for one in fields(LineLayout)})
