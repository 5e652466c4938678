"""TOML to frozen dataclasses and back, strictly: a file with a mistake is refused whole.

A dataclass is a table; its field types say what a key may hold: ``str int float bool Path``,
``Literal``, ``X | None``, ``tuple[X, ...]`` and other dataclasses. A union of dataclasses is told
apart by their key ``source``. A field without default is a required key.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from stallward.actuator.errors import ConfigError

_T = TypeVar("_T")
_INT64 = 1 << 63
"""Beyond a signed integer of 64 bits TOML promises nothing."""
_SHOWN = 200
"""So much of a wrong value is in a message."""
_SAID = {
    str: "a string",
    Path: "a path",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
}


def from_table(cls: type[_T], table: object, where: str) -> _T:
    """Build ``cls`` from a parsed TOML table.

    Args:
        cls: The dataclass to build.
        table: What the file says.
        where: The table's place in the file, for messages.

    Raises:
        ConfigError: For an unknown, missing or mistyped key, with its dotted path and the
            nearest known key.
    """
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where} is {_shown(table)}, not a table.")
    hints = get_type_hints(cls)
    known = [f.name for f in dataclasses.fields(cls)]  # type: ignore[arg-type]
    for key in table:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"Known keys: {', '.join(known)}."
            raise ConfigError(f"{where} has an unknown key {_shown(key)}.", next_step=hint)
    values = {}
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        place = f"{where}.{field.name}"
        if field.name in table:
            values[field.name] = _value(hints[field.name], table[field.name], place)
        elif _required(field):
            raise ConfigError(f"{place} is missing.", next_step=f"Add {field.name} to {where}.")
    return cls(**values)


def _required(field: dataclasses.Field[Any]) -> bool:
    missing = dataclasses.MISSING
    return field.default is missing and field.default_factory is missing


def _value(kind: Any, value: object, place: str) -> Any:
    if get_origin(kind) is types.UnionType:
        kinds = [k for k in get_args(kind) if k is not types.NoneType]
        kind = kinds[0] if len(kinds) == 1 else _variant(kinds, value, place)
    if get_origin(kind) is Literal:
        _check_choice(value, get_args(kind), place)
        return value
    if get_origin(kind) is tuple:
        if not isinstance(value, list):
            raise ConfigError(f"{place} is {_shown(value)}, not a list.")
        item = get_args(kind)[0]
        return tuple(_value(item, v, f"{place}[{i}]") for i, v in enumerate(value))
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return from_table(kind, value, place)
    if isinstance(value, int) and not -_INT64 <= value < _INT64:
        raise ConfigError(f"{place} does not fit into 64 bits.")
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    wanted = str if kind is Path else kind
    wrong_bool = isinstance(value, bool) and kind is not bool
    if not isinstance(value, wanted) or wrong_bool:
        raise ConfigError(f"{place} is {_shown(value)}, not {_SAID[kind]}.")
    if isinstance(value, str) and "\0" in value:
        raise ConfigError(f"{place} is {_shown(value)}: it holds a NUL, which no name can.")
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{place} is {value!r}, not a finite number.")
    return Path(value) if kind is Path else value


def _variant(kinds: list[Any], value: object, place: str) -> Any:
    """The dataclass of a table that comes in several variants, told apart by ``source``.

    Without that key the table is of the first variant.

    Raises:
        ConfigError: If there is no such variant, or a key belongs to another one.
    """
    if not isinstance(value, Mapping):
        raise ConfigError(f"{place} is {_shown(value)}, not a table.")
    by_name = {get_args(get_type_hints(kind)["source"])[0]: kind for kind in kinds}
    name = value.get("source", next(iter(by_name)))
    _check_choice(name, tuple(by_name), f"{place}.source")
    keys = {n: {f.name for f in dataclasses.fields(k)} for n, k in by_name.items()}
    for key in value:
        owners = [n for n, known in keys.items() if key in known]
        if owners and name not in owners:
            raise ConfigError(
                f"{place}.{key} does not apply to source = {name!r}.",
                next_step=f"It belongs to source = {' or '.join(map(repr, owners))}.",
            )
    return by_name[name]


def _check_choice(value: object, choices: tuple[str, ...], place: str) -> None:
    if not isinstance(value, str) or value not in choices:
        near = difflib.get_close_matches(_shown(value).strip("'"), choices, n=1)
        known = f"Choose one of: {', '.join(map(repr, choices))}."
        hint = f"Did you mean {near[0]!r}?" if near else known
        raise ConfigError(f"{place} is {_shown(value)}.", next_step=hint)


def _shown(value: object) -> str:
    """What the file says, for a message."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # Python prints no number of more than 4300 digits
        return f"a value of type {type(value).__name__}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def to_table(value: Any) -> dict[str, Any]:
    """The table of a dataclass; ``None`` and empty tuples are left out."""
    table: dict[str, Any] = {}
    for field in dataclasses.fields(value):
        item = getattr(value, field.name)
        if item is not None and item != ():
            table[field.name] = item
    return table


def to_toml(value: Any) -> str:
    """The TOML file of a dataclass; reading it gives the same value."""
    return "\n".join(_lines(to_table(value), "")).lstrip("\n") + "\n"


def _lines(table: Mapping[str, Any], prefix: str) -> list[str]:
    plain, nested = [], []
    for key, value in table.items():
        name = f"{prefix}{key}"
        if dataclasses.is_dataclass(value):
            nested += ["", f"[{name}]", *_lines(to_table(value), f"{name}.")]
        elif isinstance(value, tuple) and value and dataclasses.is_dataclass(value[0]):
            for item in value:
                nested += ["", f"[[{name}]]", *_lines(to_table(item), f"{name}.")]
        else:
            plain.append(f"{key} = {_literal(value)}")
    return plain + nested


def _literal(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, tuple):
        return f"[{', '.join(_literal(item) for item in value)}]"
    # JSON strings are TOML basic strings, except that TOML wants U+007F escaped.
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
