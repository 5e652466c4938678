"""The selector of a metric's series: a name and matchers, written as in PromQL.

``http_request_duration_seconds{handler="/infer",code=~"2.."}``, or with quoted names, as
Prometheus 3 has them: ``{"http.server.duration","http.route"="/infer"}``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from stallward.actuator.errors import ConfigError

_NAME: Final = re.compile(r"\s*([a-zA-Z_:][a-zA-Z0-9_:]*)?\s*")
_STRING: Final = r""""[^"\\]*(?:\\.[^"\\]*)*"|'[^'\\]*(?:\\.[^'\\]*)*'|`[^`]*`"""
_PART: Final = re.compile(
    rf"\s*(?:([a-zA-Z_][a-zA-Z0-9_]*)|({_STRING}))\s*(?:(=~|!~|!=|=)\s*({_STRING})\s*)?", re.DOTALL
)
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_UNESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r"}
_UNDERSCORED: Final = re.compile(r"^[0-9]|[^a-zA-Z0-9_:]")
_METRIC_LABEL: Final = "__name__"
_BOUNDS: Final = ("le", "vmrange")
_SUFFIXES: Final = ("_bucket", "_count", "_sum", "_created")
_HINT: Final = (
    'Write it as in PromQL: name{label="value",other=~"a|b"}, or {"name.with.dots"} if a name has '
    "other characters than letters, digits, _ and :."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Matcher:
    """One condition on a label; a missing label counts as the empty string."""

    label: str
    operator: str
    """``=``, ``!=``, ``=~`` or ``!~``; the pattern must match the whole value."""
    value: str

    def matches(self, labels: dict[str, str]) -> bool:
        """Whether the labels of a series meet the condition."""
        value = labels.get(self.label)
        if value is None:
            value = labels.get(underscored(self.label), "")
        if self.operator.endswith("~"):
            return (re.fullmatch(self.value, value) is not None) == (self.operator == "=~")
        return (value == self.value) == (self.operator == "=")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """A metric and conditions on its labels."""

    name: str
    matchers: tuple[Matcher, ...] = ()

    def matches(self, labels: dict[str, str]) -> bool:
        """Whether a series with these labels is selected."""
        return all(matcher.matches(labels) for matcher in self.matchers)


@lru_cache(maxsize=64)
def underscored(name: str) -> str:
    """Return a name as clients write it for those who do not ask for quoted names.

    https://prometheus.io/docs/instrumenting/escaping_schemes/
    """
    return _UNDERSCORED.sub("_", name)


def parse_selector(text: str, what: str = "metric") -> Selector:
    """Read a selector of a histogram.

    Raises:
        ConfigError: If the text is not a selector of a histogram.
    """
    selector = parse_any_selector(text, what)
    for suffix in _SUFFIXES:
        if selector.name.endswith(suffix):
            raise ConfigError(
                f"{what} names one series of a histogram, {selector.name!r}.",
                next_step=f"Leave out {suffix}: {selector.name.removesuffix(suffix)}.",
            )
    for matcher in selector.matchers:
        if matcher.label in _BOUNDS:
            raise ConfigError(
                f"{what} has a matcher of {matcher.label!r}: every bucket is needed."
            )
    return selector


def parse_any_selector(text: str, what: str = "metric") -> Selector:
    """Read a selector of series of any kind.

    Raises:
        ConfigError: If the text is not a selector.
    """
    wrong = ConfigError(f"{what} {text!r} is not a selector.", next_step=_HINT)
    head = _NAME.match(text)
    names = [head[1]] if head is not None and head[1] else []
    rest = text[head.end() :].strip() if head is not None else text
    if not (names or rest.startswith("{")):
        raise ConfigError(f"{what} {text!r} does not start with a metric's name.", next_step=_HINT)
    matchers: list[Matcher] = []
    if rest:
        if not (rest.startswith("{") and rest.endswith("}")):
            raise wrong
        parts = _parts(rest[1:-1])
        if parts is None:
            raise wrong
        for label, operator, value in parts:
            if label in {"", _METRIC_LABEL} and operator == "=":
                names.append(value)
            else:
                matchers.append(
                    _checked(Matcher(label=label, operator=operator, value=value), what)
                )
    if len(names) != 1 or not names[0]:
        raise ConfigError(f"{what} {text!r} does not name one metric.", next_step=_HINT)
    return Selector(name=names[0], matchers=tuple(matchers))


def _parts(inside: str) -> list[tuple[str, str, str]] | None:
    """Return label, operator and value of each part between the braces; ``None`` if one is wrong.

    A quoted string alone is the name of the metric; its label is empty.
    """
    parts: list[tuple[str, str, str]] = []
    position = 0
    while inside[position:].strip():
        match = _PART.match(inside, position)
        if match is None:
            return None
        bare, quoted, operator, string = match.groups()
        label = bare if quoted is None else _unquoted(quoted)
        if operator is None:
            operator, value = "=", None if quoted is None else label
            label = ""
        else:
            value = _unquoted(string, is_pattern=operator.endswith("~"))
            label = label or None
        if label is None or value is None:
            return None
        parts.append((label, operator, value))
        position = match.end()
        if position < len(inside):
            if inside[position] != ",":
                return None
            position += 1
    return parts


def _unquoted(quoted: str, *, is_pattern: bool = False) -> str | None:
    """Return what stands between quotes; ``None`` if PromQL does not know one of its escapes."""
    mark, inside = quoted[0], quoted[1:-1]
    if mark == "`":
        return inside
    if is_pattern:
        # A backslash belongs to the pattern; only the quote is escaped because of the quotes.
        return inside.replace(f"\\{mark}", mark).replace("\\\\", "\\")
    try:
        text = _ESCAPE.sub(_character, inside)
        text.encode()  # half of a surrogate pair is no character
    except ValueError:
        return None
    return text


def _character(match: re.Match[str]) -> str:
    code = match[1]
    if len(code) > 1:
        return chr(int(code[1:], 16))
    if code.isalnum() and code not in _UNESCAPED:
        raise ValueError(code)
    return _UNESCAPED.get(code, code)


def _checked(matcher: Matcher, what: str) -> Matcher:
    if matcher.operator.endswith("~"):
        try:
            re.compile(matcher.value)
        except (re.error, RecursionError, OverflowError) as error:
            raise ConfigError(
                f"{what}: the pattern {matcher.value!r} is not valid ({error})."
            ) from error
    return matcher
