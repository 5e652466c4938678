"""Numbers and durations as programs write them into their logs. Pure."""

from __future__ import annotations

import math
import re
from typing import Final

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
