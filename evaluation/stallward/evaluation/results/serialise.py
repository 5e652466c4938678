"""Results to JSON and back: the only place that knows how a result lies in its file.

The types of a dataclass's fields say how its object is read: ``str int float bool``, ``Literal``,
``X | None``, ``tuple[X, ...]``, ``Mapping[str, X]`` and other dataclasses. Two marks describe
files that are older than the dataclasses: the keys of a ``Flat`` field stand in the object
around it, and an ``Omitted`` field is left out of the file where it is ``None``.

Files of other versions open: a missing key takes the field's default, an unknown one is passed
over. What is there must be of the right type.
"""

from __future__ import annotations

import json
import math
import os
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from stallward.agent.schema.marks import FLAT, OMITTED
from stallward.evaluation.errors import ResultError

T = TypeVar("T")

_SHOWN: Final = 80
"""So many characters of a wrong value are in a message."""
_NAMES: Final[Mapping[object, str]] = {
    str: "a string",
    int: "a whole number",
    float: "a finite number",
    bool: "true or false",
}


def to_json(value: object) -> Any:
    """The JSON value of a result: objects, lists, strings, numbers, booleans and ``None``."""
    if is_dataclass(value) and not isinstance(value, type):
        return _object(value)
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_json(item) for item in value]
    return value


def _object(value: Any) -> dict[str, Any]:
    kind: Any = type(value)
    found: dict[str, Any] = {}
    for one in _fields(kind):
        item = getattr(value, one.name)
        if one.mark == FLAT:
            found.update(_object(item))
        elif item is not None or one.mark != OMITTED:
            found[one.name] = to_json(item)
    return found


def from_json(kind: type[T], value: object, where: str = "") -> T:
    """The value that :func:`to_json` made ``value`` of.

    Args:
        kind: A dataclass, or a mapping to values of one type.
        value: As ``json`` parsed it.
        where: The place of ``value`` in its file, for messages; empty for the file itself.

    Raises:
        ResultError: If a key is missing or holds something else; it names the key.
    """
    found: T = _value(kind, value, where)
    return found


def load(kind: type[T], path: Path) -> T:
    """Read the result in a file.

    Raises:
        ResultError: If there is no such file, or something else is in it.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
        return from_json(kind, value)
    except OSError as error:
        raise ResultError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise ResultError(f"{path} is no JSON that can be read: {error}.") from error
    except ResultError as error:
        raise ResultError(f"{path}: {error.cause}") from error


def load_if_there(kind: type[T], path: Path) -> T | None:
    """What :func:`load` gives; ``None`` where there is no file, or one that was never finished."""
    try:
        return load(kind, path)
    except ResultError:
        return None


def holds_object(path: Path) -> bool:
    """Whether a file holds a whole JSON object, of whatever kind."""
    try:
        return isinstance(json.loads(path.read_text(encoding="utf-8")), dict)
    except (OSError, ValueError, RecursionError):
        return False


def save(path: Path, value: object) -> None:
    """Write a result so that a reader sees all of it or the file that was there before."""
    text = json.dumps(to_json(value), indent=2, allow_nan=False)
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


class _Field(NamedTuple):
    """A field of a dataclass, as its object is read and written."""

    name: str
    kind: Any
    mark: str
    required: bool


@cache
def _fields(kind: Any) -> tuple[_Field, ...]:
    hints = get_type_hints(kind, include_extras=True)
    return tuple(_field(one, hints[one.name]) for one in fields(kind))


def _field(one: Field[Any], hint: Any) -> _Field:
    required = one.default is MISSING and one.default_factory is MISSING
    if get_origin(hint) is not Annotated:
        return _Field(name=one.name, kind=hint, mark="", required=required)
    kind, mark = get_args(hint)
    return _Field(name=one.name, kind=kind, mark=mark, required=required)


def _dataclass(kind: Any, value: object, where: str) -> Any:
    if not isinstance(value, Mapping):
        raise _wrong(where, value, "an object")
    found = {}
    for one in _fields(kind):
        place = _place(where, one.name)
        if one.mark == FLAT:
            found[one.name] = _dataclass(one.kind, value, where)
        elif one.name in value:
            found[one.name] = _value(one.kind, value[one.name], place)
        elif one.required:
            raise ResultError(f"{place} is missing.")
    try:
        return kind(**found)
    except ValueError as error:
        raise ResultError(f"{where or 'The file'}: {error}.") from error


def _value(kind: Any, value: object, where: str) -> Any:
    reader = _READERS.get(get_origin(kind))
    if reader is not None:
        return reader(kind, value, where)
    if is_dataclass(kind):
        return _dataclass(kind, value, where)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = _as_float(value, where)
    wrong_bool = isinstance(value, bool) and kind is not bool
    if not isinstance(value, kind) or wrong_bool:
        raise _wrong(where, value, _NAMES[kind])
    if isinstance(value, float) and not math.isfinite(value):
        raise _wrong(where, value, _NAMES[float])
    return value


def _as_float(value: int, where: str) -> float:
    try:
        return float(value)
    except OverflowError as error:
        raise ResultError(f"{where} is too large a number.") from error


def _union(kind: Any, value: object, where: str) -> Any:
    kinds = [one for one in get_args(kind) if one is not types.NoneType]
    if value is None and len(kinds) < len(get_args(kind)):
        return None
    return _value(kinds[0], value, where)


def _literal(kind: Any, value: object, where: str) -> Any:
    choices = get_args(kind)
    if not isinstance(value, (str, int)) or value not in choices:
        raise _wrong(where, value, " or ".join(repr(choice) for choice in choices))
    return value


def _tuple(kind: Any, value: object, where: str) -> Any:
    if not isinstance(value, list):
        raise _wrong(where, value, "a list")
    item = get_args(kind)[0]
    return tuple(_value(item, each, f"{where}[{i}]") for i, each in enumerate(value))


def _mapping(kind: Any, value: object, where: str) -> Any:
    if not isinstance(value, Mapping):
        raise _wrong(where, value, "an object")
    item = get_args(kind)[1]
    return {key: _value(item, each, _place(where, key)) for key, each in value.items()}


_READERS: Final[Mapping[object, Callable[[Any, object, str], Any]]] = {
    types.UnionType: _union,
    Union: _union,
    Literal: _literal,
    tuple: _tuple,
    Mapping: _mapping,
    dict: _mapping,
}


def _place(where: str, key: str) -> str:
    """The dotted path of a key; labels of arms in it may be of any length."""
    return f"{where}.{key[:_SHOWN]}" if where else key[:_SHOWN]


def _wrong(where: str, value: object, wanted: str) -> ResultError:
    return ResultError(f"{where or 'The file'} is {_shown(value)}, not {wanted}.")


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # Python prints no number of more than 4300 digits
        return f"a value of type {type(value).__name__}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
