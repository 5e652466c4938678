"""Conversion between a dataclass of scalars and the message with the same fields."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import fields
from numbers import Integral, Real
from operator import attrgetter
from typing import Any, Final, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

Parts = dict[str, Any]
"""The keyword arguments of a message's class."""
_M = TypeVar("_M", bound=Message)
_BOUNDS: Final = {
    FieldDescriptor.CPPTYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, (1 << 32) - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, (1 << 64) - 1),
}
"""The least and the greatest number of each whole type of the wire."""
_REAL: Final = frozenset({FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT})
_GREATEST: Final = sys.float_info.max


def make_message(kind: type[_M], parts: Parts) -> _M:
    """Make a message; a number that the wire cannot hold becomes the nearest that it can.

    A counter of an application may be anything, and it must not end the tick that tells of it.
    Bounds are looked at only after protobuf has refused: a look at each number takes longer than
    making the message.
    """
    try:
        return kind(**parts)
    except (ValueError, TypeError, OverflowError):
        return kind(**_fitting(parts, kind.DESCRIPTOR))


def _fitting(parts: Parts, message: Any) -> Parts:
    """Return the fields with values that fit; what is no number or text stays as it is.

    Args:
        parts: The fields.
        message: The descriptor of their message.
    """
    known = message.fields_by_name
    return {name: _fit(value, known[name]) for name, value in parts.items()}


def _fit(value: Any, field: FieldDescriptor) -> Any:
    if isinstance(value, list | tuple):
        return [_fit(item, field) for item in value]
    if isinstance(value, dict) and field.message_type is not None:
        return _fitting(value, field.message_type)
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if field.cpp_type in _BOUNDS and isinstance(value, Real):
        low, high = _BOUNDS[field.cpp_type]
        return _nearest(value, low, high)
    if field.cpp_type in _REAL and isinstance(value, Integral):
        return float(_nearest(value, -int(_GREATEST), int(_GREATEST)))
    return value


def _nearest(value: Any, low: int, high: int) -> int:
    """Return the whole number nearest to ``value`` that is within bounds; ``low`` for NaN."""
    if low < value < high:
        return int(value)
    return high if value >= high else low


class FlatWire:
    """Converts between a dataclass of scalars and the message with the same fields.

    Args:
        domain: The dataclass.
        wire: The message.
        skip: Fields that are converted elsewhere.
    """

    def __init__(
        self, domain: type[Any], wire: type[Message], *, skip: tuple[str, ...] = ()
    ) -> None:
        self.names = tuple(f.name for f in fields(domain) if f.name not in skip)
        self._values = _getter(self.names)
        descriptors = wire.DESCRIPTOR.fields_by_name
        self.optional = tuple((name, descriptors[name].has_presence) for name in self.names)
        self.repeated = tuple(name for name in self.names if descriptors[name].is_repeated)

    def to_wire(self, value: Any) -> Parts:
        """Return the fields of the message, without those that are ``None``."""
        items = zip(self.names, self._values(value), strict=True)
        return {name: item for name, item in items if item is not None}

    def from_wire(self, message: Message) -> Parts:
        """Return the arguments of the dataclass; an absent optional field is ``None``."""
        arguments = {
            name: None if optional and not message.HasField(name) else getattr(message, name)
            for name, optional in self.optional
        }
        for name in self.repeated:
            arguments[name] = tuple(getattr(message, name))
        return arguments


def _getter(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """Make a reader of attributes; ``attrgetter`` returns no tuple for fewer than two names."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple(getattr(value, name) for name in names)
