"""Conversion between a dataclass of scalars and the message with the same fields."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from operator import attrgetter
from typing import Any

from google.protobuf.message import Message

Parts = dict[str, Any]
"""The keyword arguments of a message's class."""


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
