"""Read TOML or JSON into frozen dataclasses, strictly: a file with a mistake is refused whole.

A dataclass is a table and its fields are the keys; a field without a default is required. The
types of fields say what a key may hold: ``str``, ``int``, ``float``, ``bool``, ``Path``,
``Literal``, an ``Enum``, ``tuple[X, ...]``, ``Mapping[str, X]``, another dataclass, ``object`` for
anything, and unions. ``Annotated`` adds an :class:`Expect`, a mark of ``marks.py``, or a function
that takes the value and raises :class:`SchemaError`. Which dataclass of a union a table holds is
decided by the field that is a ``Literal`` in each of them; a table without it is read as the
first.

Rules that concern several keys are checked by the dataclass itself, in ``__post_init__``. It
raises a :class:`SchemaError` whose cause begins with the key, and the reader puts the place of the
table before it. All mistakes of a file are reported at once, each with the key, the expected value
and the actual one.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin

from stallward.agent.errors import SchemaError, StallwardError
from stallward.agent.schema.describe import (
    Expect,
    can_encode,
    dotted,
    expectation,
    expected,
    shown,
    type_name,
)
from stallward.agent.schema.keys import Key, bare_type, fields_of, is_literal, keys_of

NonNegativeInt = Annotated[int, Expect(low=0)]
NonNegativeFloat = Annotated[float, Expect(low=0, high=math.nextafter(2.0**63, 0))]

_T = TypeVar("_T")
_INT64: Final = 1 << 63
"""Beyond a signed integer of 64 bits TOML promises nothing."""
_MEANT_AS_WRITTEN: Final = {"\b": r"\b", "\f": r"\f", "\x1b": r"\e"}
"""Control characters that no name, path or pattern holds, with the escapes that make them. Whoever
writes such an escape means a word boundary or a backslash."""
_MAX_MISTAKES: Final = 10
"""After this many mistakes reading stops: the file must be of another kind."""


def read(cls: type[_T], values: object, where: str = "", *, strict: bool = True) -> _T:
    """Make a dataclass from a parsed file.

    Args:
        cls: The dataclass, or a mapping to values of one type.
        values: The content of the file.
        where: The name of the content in messages; empty for keys without a prefix.
        strict: Whether people write such files. A file that only programs write may come from
            another version, so without ``strict`` unknown keys are ignored, and text may hold
            any character.

    Raises:
        SchemaError: If a key is unknown, missing, of another type or out of range. The message
            names every such key with its dotted path.
    """
    reader = _Reader(strict=strict)
    parsed = reader.value(cls, values, where)
    if reader.mistakes:
        raise reader.error()
    return parsed  # type: ignore[no-any-return]


class _Reader:
    """Reads one file and collects its mistakes; a value with a mistake becomes ``None``."""

    def __init__(self, *, strict: bool) -> None:
        self.mistakes: list[tuple[str, str]] = []
        self._strict = strict

    def error(self) -> SchemaError:
        """All mistakes as one error."""
        if len(self.mistakes) == 1:
            cause, next_step = self.mistakes[0]
            return SchemaError(cause, next_step=next_step)
        return SchemaError(" ".join(f"{cause} {step}".strip() for cause, step in self.mistakes))

    def table(self, cls: Any, values: object, where: str) -> Any:
        """Read a table into a dataclass."""
        if not isinstance(values, Mapping):
            return self._refuse_type(cls, values, where)
        before = len(self.mistakes)
        keys = keys_of(cls)
        missing = [name for name, key in keys.items() if key.required and name not in values]
        for name in values if self._strict else ():
            if name not in keys:
                self._refuse_unknown(name, keys, missing, where)
        for name in missing:
            self._refuse(
                f"{dotted(where, name)} is missing.",
                f"Add {name} to {where or 'the file'}; it is {expected(keys[name].kind)}.",
            )
        parsed = {
            name: self.value(key.kind, values[name], dotted(where, name))
            for name, key in keys.items()
            if name in values
        }
        return None if len(self.mistakes) > before else self._dataclass(cls, parsed, where)

    def _dataclass(self, cls: Any, values: Mapping[str, Any], where: str) -> Any:
        before = len(self.mistakes)
        arguments = {}
        for name, field in fields_of(cls).items():
            if field.flat:
                arguments[name] = self._dataclass(bare_type(field.kind), values, where)
            elif name in values:
                arguments[name] = values[name]
        if len(self.mistakes) > before:
            return None
        try:
            return cls(**arguments)
        except SchemaError as error:
            return self._refuse(dotted(where, error.cause), error.next_step)
        except StallwardError as error:
            return self._refuse(error.cause, error.next_step)

    def value(self, kind: Any, value: object, place: str) -> Any:
        """Read the value of one key."""
        before = len(self.mistakes)
        bare = bare_type(kind)
        parsed = self._typed(kind, bare, value, place)
        if len(self.mistakes) > before or bare is kind:
            return parsed
        self._check_bounds(kind, parsed, place)
        for check in get_args(kind)[1:]:
            if callable(check) and len(self.mistakes) == before:
                self._check_by(check, parsed, place)
        return parsed

    def _typed(self, kind: Any, bare: Any, value: object, place: str) -> Any:
        origin, arguments = get_origin(bare), get_args(bare)
        if bare in {object, Any}:
            parsed: Any = value
        elif origin in {Union, UnionType}:
            parsed = self._union(kind, bare, value, place)
        elif origin is Literal:
            parsed = self._choice({choice: choice for choice in arguments}, value, place)
        elif origin is tuple:
            parsed = self._list(kind, arguments[0], value, place)
        elif origin in {Mapping, dict}:
            parsed = self._mapping(kind, arguments[1], value, place)
        elif dataclasses.is_dataclass(bare):
            parsed = self.table(bare, value, place)
        elif issubclass(bare, Enum):
            parsed = self._choice({member.value: member for member in bare}, value, place)
        else:
            parsed = self._scalar(kind, bare, value, place)
        return parsed

    def _scalar(self, kind: Any, bare: Any, value: object, place: str) -> Any:
        if isinstance(value, int) and not -_INT64 <= value < _INT64:
            return self._refuse(f"{place} does not fit into 64 bits.")
        if bare is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        # A bool is an int in Python, but `nice = true` is a mistake.
        wrong_bool = isinstance(value, bool) and bare is not bool
        if wrong_bool or not isinstance(value, str if bare is Path else bare):
            return self._refuse_type(kind, value, place)
        if isinstance(value, float) and not _is_usable(value, expectation(kind)):
            return self._refuse(f"{place} is {value!r}, not a finite number.")
        if self._strict and isinstance(value, str):
            fault, next_step = _text_fault(value, is_path=bare is Path)
            if fault:
                return self._refuse(f"{place} is {shown(value)}: {fault}.", next_step)
        return Path(value) if bare is Path and isinstance(value, str) else value

    def _list(self, kind: Any, item: Any, value: object, place: str) -> Any:
        if not isinstance(value, list | tuple):
            return self._refuse_type(kind, value, place)
        return tuple(self.value(item, v, f"{place}[{i}]") for i, v in enumerate(value))

    def _mapping(self, kind: Any, item: Any, value: object, place: str) -> Any:
        if not isinstance(value, Mapping):
            return self._refuse_type(kind, value, place)
        return {key: self.value(item, v, dotted(place, key)) for key, v in value.items()}

    def _choice(self, choices: Mapping[Any, Any], value: object, place: str) -> Any:
        for choice, chosen in choices.items():
            if type(value) is type(choice) and value == choice:
                return chosen
        names = [choice for choice in choices if isinstance(choice, str)]
        near = difflib.get_close_matches(value, names, n=1) if isinstance(value, str) else []
        known = f"Choose one of: {', '.join(map(repr, choices))}."
        return self._refuse(
            f"{place} is {shown(value)}.", f"Did you mean {near[0]!r}?" if near else known
        )

    def _union(self, kind: Any, bare: Any, value: object, place: str) -> Any:
        kinds = [k for k in get_args(bare) if k is not NoneType]
        if value is None and len(kinds) < len(get_args(bare)):
            return None
        if isinstance(
            value, Mapping | list
        ):  # a table or a list of tables, each with its mistakes
            tables = [k for k in kinds if _is_list(k) == isinstance(value, list)]
            kinds = tables if len(tables) == 1 else kinds
        if len(kinds) == 1:
            return self.value(kinds[0], value, place)
        if all(dataclasses.is_dataclass(k) for k in kinds):
            return self._variant(kind, kinds, value, place)
        for alternative in kinds:
            trial = _Reader(strict=self._strict)
            parsed = trial.value(alternative, value, place)
            if not trial.mistakes:
                return parsed
        return self._refuse(f"{place} is {shown(value)}, not {expected(kind)}.")

    def _variant(self, kind: Any, kinds: list[Any], value: object, place: str) -> Any:
        """Read a table that is one of several dataclasses."""
        if not isinstance(value, Mapping):
            return self._refuse_type(kind, value, place)
        tag = next(
            name
            for name in keys_of(kinds[0])
            if all(is_literal(keys_of(k).get(name)) for k in kinds)
        )
        by_name = {name: k for k in kinds for name in get_args(keys_of(k)[tag].kind)}
        before = len(self.mistakes)
        name = value.get(tag, next(iter(by_name)))
        cls = self._choice(by_name, name, dotted(place, tag))
        if len(self.mistakes) > before:
            return None
        applicable = dict(value)
        for key in value:
            owners = [repr(n) for n, k in by_name.items() if key in keys_of(k)]
            if owners and key not in keys_of(cls):
                del applicable[key]
                self._refuse(
                    f"{dotted(place, key)} does not apply to {tag} = {name!r}.",
                    f"It belongs to {tag} = {' or '.join(owners)}.",
                )
        return self.table(cls, applicable, place)

    def _check_bounds(self, kind: Any, value: Any, place: str) -> None:
        expect = expectation(kind)
        if isinstance(value, tuple):
            if not expect.holds(len(value)):
                count = f"{len(value)} {expect.unit or 'items'}"
                wanted = expect.range.removeprefix("from ")
                self._refuse(f"{place} has {count}, but must have {wanted}.", expect.meaning)
        elif isinstance(value, int | float) and not expect.holds(value):
            unit = f" {expect.unit}" if expect.unit else ""
            number = shown(value) if isinstance(value, int) else f"{value:g}"
            self._refuse(f"{place} is {number}{unit}, but must be {expect.range}.", expect.meaning)

    def _check_by(self, check: Callable[[Any], object], value: Any, place: str) -> None:
        try:
            check(value)
        except SchemaError as error:
            self._refuse(f"{place} {error.cause}", error.next_step)

    def _refuse_unknown(
        self, name: object, keys: Mapping[str, Key], missing: list[str], where: str
    ) -> None:
        near = difflib.get_close_matches(str(name), keys, n=1)
        hint = f"Did you mean {near[0]!r}?" if near else f"Known keys: {', '.join(keys)}."
        if near and near[0] in missing:
            missing.remove(near[0])
            kind = keys[near[0]].kind
            hint += f" {dotted(where, near[0])} is missing; it is {expected(kind)}."
        self._refuse(f"{where or 'the file'} has an unknown key {shown(name)}.", hint)

    def _refuse_type(self, kind: Any, value: object, place: str) -> None:
        self._refuse(
            f"{place or 'the file'} is {shown(value)}, not {expected(kind)} but "
            f"{type_name(value)}.",
            expectation(kind).meaning,
        )

    def _refuse(self, cause: str, next_step: str = "") -> None:
        self.mistakes.append((cause, next_step))
        if len(self.mistakes) >= _MAX_MISTAKES:
            raise self.error()


def _is_list(kind: Any) -> bool:
    return get_origin(bare_type(kind)) is tuple


def _text_fault(text: str, *, is_path: bool) -> tuple[str, str]:
    """What is wrong with a text that a person wrote, and what to do; empty if nothing is."""
    if "\0" in text:
        return "it holds a NUL, which no name can", ""
    for character, escape in _MEANT_AS_WRITTEN.items():
        if character in text:
            step = "Write it in single quotes, where a backslash is a backslash."
            return f"in double quotes {escape} is a control character", step
    return "" if can_encode(text, is_path=is_path) else "it holds half a character", ""


def _is_usable(number: float, expect: Expect) -> bool:
    return math.isfinite(number) or (expect.infinite and not math.isnan(number))
