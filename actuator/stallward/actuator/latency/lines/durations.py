"""Numbers and durations as programs write them into their logs. Pure."""

from __future__ import annotations

import math
import re
from typing import Final

UNIT_S: Final = {
    **dict.fromkeys(("h", "hr", "hour", "hours"), 3600.0),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("ms", "msec", "msecs", "millis", "milliseconds"), 1e-3),
    # The micro sign has two code points, and Greek keyboards write the other one.
    **dict.fromkeys(("us", "\u00b5s", "\u03bcs", "usec", "usecs", "micros", "microseconds"), 1e-6),
    **dict.fromkeys(("ns", "nsec", "nsecs", "nanos", "nanoseconds"), 1e-9),
}
"""The seconds in each unit, by every word for it."""
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+) ?([a-z\u00b5\u03bc]+) ?")
_AROUND: Final = frozenset("0123456789.hmsnu\u00b5\u03bc\ufffd")
"""The characters of a duration as Go writes it; a micro sign in another encoding is read as the
last one."""
_UNIT_STARTS: Final = _AROUND - frozenset("0123456789.")


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
        if part is None or unit_s is None or unit_s >= last_s:
            raise ValueError(f"not a duration: {word[:40]!r}")
        total_s += float(part[1]) * unit_s
        at, last_s = part.end(), unit_s
    if not word:
        raise ValueError("there is no number")
    return total_s


def latency_s(
    text: str, unit_s: float, *, unit: str | None, line: str, span: tuple[int, int] | None
) -> float:
    """Return the latency in a line, in seconds.

    Its own unit counts: in the field itself, attached to it in the line, or in a field beside it.

    Args:
        text: The field.
        unit_s: The seconds per unit of a latency that has no unit of its own.
        unit: The field that has the unit; ``None`` or empty if there is none.
        line: The whole line.
        span: Where a pattern has found the field in the line; ``None`` if it is a column.

    Raises:
        ValueError: If it is neither a number nor a duration, or its unit is not known.
    """
    word = text.strip()
    if word[-1:].isalpha():
        return duration_s(word)
    attached = attached_duration(line, *span) if span is not None else None
    if attached is not None:
        return duration_s(attached)
    unit = (unit or "").strip()
    if unit and unit not in UNIT_S:
        raise ValueError(f"not a unit: {unit[:40]!r}")
    return parse_number(word) * (UNIT_S[unit] if unit else unit_s)


def attached_duration(line: str, start: int, end: int) -> str | None:
    """Return the duration in ``line`` of which ``line[start:end]`` is only a number.

    A pattern such as ``took=([0-9.]+)`` finds ``1.05`` in ``took=1.05s`` and ``1`` in
    ``took=1m2s``. Such a number without its unit would be off by powers of ten.

    Returns:
        The whole duration; ``None`` if no unit is attached to the number.

    Raises:
        ValueError: If what is attached must be a unit, and is none that is known.
    """
    behind, before = line[end : end + 1], line[start - 1 : start] if start else ""
    if behind not in _UNIT_STARTS and before not in _UNIT_STARTS:
        return None
    stop, begin = end, start
    while stop < len(line) and line[stop] in _AROUND:
        stop += 1
    while begin > 0 and line[begin - 1] in _AROUND:
        begin -= 1
    for first in dict.fromkeys((begin, start)):
        word = line[first:stop]
        if word[-1:] in _UNIT_STARTS:
            try:
                duration_s(word)
            except ValueError:
                continue
            return word
    if behind and behind in "\u00b5\u03bc\ufffd":
        raise ValueError("a unit that is not known")
    return None
