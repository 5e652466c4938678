"""Whether a value read from JSON is what the dataclass it was put into says."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, get_args, get_origin, get_type_hints

_MOST = 1 << 63


def check_fields(value: Any) -> None:
    """Check the type of every field, also of dataclasses and tuples in it.

    No number may be negative or too large for 64 bits; one is infinite or NaN only where that is
    the field's default.

    Raises:
        ValueError: If a field is of another type or out of range; it names the field.
    """
    hints = get_type_hints(type(value))
    for field in dataclasses.fields(value):
        _check(field.name, hints[field.name], getattr(value, field.name), field.default)


def _check(name: str, kind: Any, value: object, default: object) -> None:
    if dataclasses.is_dataclass(value) and isinstance(value, kind):
        check_fields(value)
    elif get_origin(kind) is tuple and isinstance(value, tuple):
        for item in value:
            _check(name, get_args(kind)[0], item, default)
    elif kind in {int, float}:
        allowed = int if kind is int else (int, float)
        usable = isinstance(value, allowed) and not isinstance(value, bool)
        if not usable or not (_in_range(value) or value == default):
            raise ValueError(f"{name} is {_shown(value)}")
    elif get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise ValueError(f"{name} is {_shown(value)}")
    elif not isinstance(value, get_origin(kind) or kind):
        raise ValueError(f"{name} is {_shown(value)}")


def _in_range(value: Any) -> bool:
    return bool(0 <= value < _MOST)  # which NaN is not


def _shown(value: object) -> str:
    return f"{value!r:.80}"
