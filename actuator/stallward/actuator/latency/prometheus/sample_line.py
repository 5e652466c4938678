"""One sample of the Prometheus text format: its name, its labels and its value.

The text format 0.0.4, OpenMetrics and the quoted names of Prometheus 3 are read::

    request_seconds_bucket{code="200",le="0.1"} 3
    {"http.server.duration_bucket","http.route"="/a",le="0.1"} 3

https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from stallward.agent.printable import printable

_QUOTED: Final = r'"([^"\\]*(?:\\.[^"\\]*)*)"'
_LABEL: Final = re.compile(
    rf"\s*(?:([a-zA-Z_][a-zA-Z0-9_]*)|{_QUOTED})\s*=\s*{_QUOTED}\s*(?:,|(?=\}}))"
)
_NAME: Final = re.compile(rf"\s*{_QUOTED}\s*(?:,|(?=\}}))")
_LABELS_END: Final = re.compile(r"\s*\}")
_ESCAPE: Final = re.compile(r"\\(.)")
_NUMBER: Final = re.compile(
    r"\s*([+-]?(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf|nan))(?=\s|$)",
    re.IGNORECASE,
)
_LABEL_VALUE: Final = re.compile(
    r'(\b(?:le|vmrange)"?\s*=\s*"[^"]{0,60}")|=\s*(?:"(?:[^"\\]|\\.)*"?|[^"\s,}][^\s,}]*)'
)
COMPOSITE: Final = re.compile(r"\s*\{[a-z_]+:")
"""How a value of several numbers begins in OpenMetrics 2.0."""
_SHOWN_CHARACTERS: Final = 100


class Sample(NamedTuple):
    """One line of a page."""

    name: str
    labels: dict[str, str]
    value: float


def read_sample(name: str, rest: str) -> Sample | None:
    """Read a line after its name; ``None`` if it is not a sample.

    Args:
        name: The name before the braces; empty if it stands inside them.
        rest: The line after the name: labels, value, and whatever follows.
    """
    series = read_series_name(name, rest)
    if series is None:
        return None
    name, labels, place = series
    value = _NUMBER.match(rest, place)
    return None if value is None else Sample(name, labels, float(value[1]))


def read_series_name(name: str, rest: str) -> tuple[str, dict[str, str], int] | None:
    """Read the name and the labels of a line; ``None`` if it has none.

    Args:
        name: The name before the braces; empty if it stands inside them.
        rest: The line after the name.

    Returns:
        The name, the labels, and where in ``rest`` the value begins.
    """
    labels: dict[str, str] = {}
    position = len(rest) - len(rest.lstrip())
    if rest.startswith("{", position):
        position += 1
        while (end := _LABELS_END.match(rest, position)) is None:
            label = _LABEL.match(rest, position)
            if label is None:
                inner = _NAME.match(rest, position)
                if name and COMPOSITE.match(rest):
                    return name, labels, 0
                if inner is None or name:
                    return None
                name, position = _unescaped(inner[1]), inner.end()
                continue
            key = label[1] or _unescaped(label[2])
            if key in labels:
                return None
            labels[key] = _unescaped(label[3])
            position = label.end()
        position = end.end()
    return (name, labels, position) if name else None


def read_number(text: str) -> float | None:
    """Read a number as a page writes it; ``None`` if the text is none."""
    number = _NUMBER.fullmatch(text)
    return None if number is None else float(number[1])


def escaped(text: str) -> str:
    """Return a name or a value as it stands between quotes."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(_character, text) if "\\" in text else text


def _character(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]


def masked(line: str) -> str:
    """Return the start of a line as it may be shown: its form, and nothing personal.

    The values of labels may be paths or names of users, so only the bounds of a bucket are left of
    them; every digit becomes 0.
    """
    line = _LABEL_VALUE.sub(_hidden, line[: 10 * _SHOWN_CHARACTERS])
    return printable(re.sub("[0-9]", "0", line[:_SHOWN_CHARACTERS]))


def _hidden(match: re.Match[str]) -> str:
    return match[1] or '="..."'
