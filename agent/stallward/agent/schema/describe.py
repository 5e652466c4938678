"""Descriptions of expected and of wrong values, for messages."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

_MAX_SHOWN: Final = 200
"""The number of characters of a wrong value that a message shows at most."""
_NAMES: Final[Mapping[Any, str]] = {
    str: "a string",
    Path: "a path",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "a table",
    object: "a value",
    NoneType: "null",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Expect:
    """Requirements on a value beyond its type; it stands in ``Annotated``."""

    low: float | None = None
    """The least number, or the least length of a list; included."""
    high: float | None = None
    """The greatest number, or the greatest length of a list; included."""
    unit: str = ""
    """The unit of a number, or what a list consists of, in the plural."""
    meaning: str = ""
    """What to write, as a sentence; messages about the value end with it."""
    infinite: bool = False
    """Whether a number may be infinite."""
    required: bool = False
    """Whether a file must have the key although the field has a default. The default is then only
    for values that are made in code."""

    def holds(self, number: float) -> bool:
        """Whether a number is within the bounds."""
        return (self.low is None or number >= self.low) and (
            self.high is None or number <= self.high
        )

    @property
    def range(self) -> str:
        """The bounds in words; empty if there are none."""
        if self.low is not None and self.high is not None:
            return f"from {self.low:g} to {self.high:g}"
        if self.low is not None:
            return f"at least {self.low:g}"
        return f"at most {self.high:g}" if self.high is not None else ""


def expectation(kind: Any) -> Expect:
    """The :class:`Expect` of an annotated type; one without requirements if it has none."""
    extras = get_args(kind)[1:] if get_origin(kind) is Annotated else ()
    return next((extra for extra in extras if isinstance(extra, Expect)), Expect())


def expected(kind: Any) -> str:
    """Describe the values that a key of this type may have: "a whole number from 0 to 19"."""
    expect = expectation(kind)
    bare = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    origin, arguments = get_origin(bare), get_args(bare)
    if origin is Union or origin is UnionType:
        return " or ".join(dict.fromkeys(expected(k) for k in arguments if k is not NoneType))
    if origin is Literal:
        return _one_of(arguments)
    if isinstance(bare, type) and issubclass(bare, Enum):
        return _one_of(tuple(member.value for member in bare))
    if origin is tuple:
        return _list(arguments[0], expect)
    if origin is Mapping or dataclasses.is_dataclass(bare):
        return _NAMES[dict]
    text = _NAMES.get(bare, "a value")
    text += f" of {expect.unit}" if expect.unit else ""
    return f"{text} {expect.range}".rstrip()


def _one_of(choices: tuple[object, ...]) -> str:
    listed = ", ".join(map(repr, choices))
    return listed if len(choices) == 1 else f"one of {listed}"


def _list(item: Any, expect: Expect) -> str:
    items = expect.unit
    if not items:
        name = expected(item).removeprefix("a ").partition(" from ")[0]
        items = f"{name}s" if name.isalpha() or name == "whole number" else "values"
    if expect.low == 1 and expect.high is None:
        return f"a list of {items} that is not empty"
    bounds = expect.range.removeprefix("from ")
    return f"a list of {bounds} {items}" if bounds else f"a list of {items}"


def type_name(value: object) -> str:
    """The type of a value in a file, in words."""
    return _NAMES.get(type(value), f"a {type(value).__name__}")


def shown(value: object) -> str:
    """A value in a file, short enough for a message."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # Python refuses to print more than 4300 digits
        return f"a value of type {type(value).__name__}"
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def can_encode(text: str, *, is_path: bool) -> bool:
    """Whether a text can be encoded, which half of a surrogate pair from JSON cannot.

    A path may hold such halves: Python represents the bytes of a path that are not UTF-8 by them.
    """
    try:
        text.encode("utf-8", "surrogateescape" if is_path else "strict")
    except UnicodeEncodeError:
        return False
    return True


def dotted(where: str, key: object) -> str:
    """The dotted path of a key in a table; ``where`` is empty for the top level of a file."""
    return f"{where}.{key}" if where else str(key)
