"""The selector of a metric's series: a name and matchers, written as in PromQL.

``http_request_duration_seconds{handler="/infer",code=~"2.."}``
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from stallward.actuator.errors import ConfigError

_NAME: Final = re.compile(r"\s*([a-zA-Z_:][a-zA-Z0-9_:]*)\s*")
_MATCHER: Final = re.compile(
    r"""\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*(=~|!~|!=|=)\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')\s*"""
)
_ESCAPE: Final = re.compile(r"\\(.)")
_UNESCAPED: Final = {"n": "\n", "t": "\t"}
_SUFFIXES: Final = ("_bucket", "_count", "_sum", "_created")
_HINT: Final = 'Write it as in PromQL: name{label="value",other=~"a|b"}.'


@dataclass(frozen=True, slots=True, kw_only=True)
class Matcher:
    """One condition on a label; a missing label counts as the empty string."""

    label: str
    operator: str
    """``=``, ``!=``, ``=~`` or ``!~``; the pattern must match the whole value."""
    value: str

    def matches(self, labels: dict[str, str]) -> bool:
        """Whether the labels of a series meet the condition."""
        value = labels.get(self.label, "")
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


def parse_selector(text: str, what: str = "metric") -> Selector:
    """Read a selector of a histogram.

    Raises:
        ConfigError: If the text is not a selector of a histogram.
    """
    head = _NAME.match(text)
    if head is None:
        raise ConfigError(f"{what} {text!r} does not start with a metric's name.", next_step=_HINT)
    name, rest = head[1], text[head.end() :].strip()
    for suffix in _SUFFIXES:
        if name.endswith(suffix):
            raise ConfigError(
                f"{what} names one series of a histogram, {name!r}.",
                next_step=f"Leave out {suffix}: {name.removesuffix(suffix)}.",
            )
    if not rest:
        return Selector(name=name)
    if not (rest.startswith("{") and rest.endswith("}")):
        raise ConfigError(f"{what} {text!r} is not a selector.", next_step=_HINT)
    return Selector(name=name, matchers=tuple(_matchers(rest[1:-1], text, what)))


def _matchers(inside: str, text: str, what: str) -> list[Matcher]:
    matchers: list[Matcher] = []
    position = 0
    while inside[position:].strip():
        match = _MATCHER.match(inside, position)
        if match is None:
            raise ConfigError(f"{what} {text!r} is not a selector.", next_step=_HINT)
        label, operator, quoted = match.groups()
        value = _ESCAPE.sub(lambda m: _UNESCAPED.get(m[1], m[1]), quoted[1:-1])
        if operator.endswith("~"):
            # A backslash belongs to the pattern; only the quote is escaped because of the quotes.
            value = quoted[1:-1].replace(f"\\{quoted[0]}", quoted[0]).replace("\\\\", "\\")
        matchers.append(_checked(Matcher(label=label, operator=operator, value=value), what))
        position = match.end()
        if position < len(inside):
            if inside[position] != ",":
                raise ConfigError(f"{what} {text!r} is not a selector.", next_step=_HINT)
            position += 1
    return matchers


def _checked(matcher: Matcher, what: str) -> Matcher:
    if matcher.label == "le":
        raise ConfigError(f"{what} has a matcher of 'le': every bucket is needed.")
    if matcher.operator.endswith("~"):
        try:
            re.compile(matcher.value)
        except (re.error, RecursionError, OverflowError) as error:
            raise ConfigError(
                f"{what}: the pattern {matcher.value!r} is not valid ({error})."
            ) from error
    return matcher
