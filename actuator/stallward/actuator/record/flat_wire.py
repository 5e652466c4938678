"""Converts a dataclass of scalars to the message with the same fields, and back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from operator import attrgetter
from typing import Any

from google.protobuf.message import Message

Parts = dict[str, Any]
"""The fields of a message, as its class takes them."""


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
        described = wire.DESCRIPTOR.fields_by_name
        self.optional = tuple((name, described[name].has_presence) for name in self.names)
        self.repeated = tuple(name for name in self.names if described[name].is_repeated)

    def to_wire(self, value: Any) -> Parts:
        """The fields of the message; those that are ``None`` are left out."""
        found = zip(self.names, self._values(value), strict=True)
        return {name: part for name, part in found if part is not None}

    def from_wire(self, message: Message) -> Parts:
        """The arguments of the dataclass; absent optional fields are ``None``."""
        found = {
            name: None if optional and not message.HasField(name) else getattr(message, name)
            for name, optional in self.optional
        }
        for name in self.repeated:
            found[name] = tuple(getattr(message, name))
        return found


def _getter(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """Reads the attributes of a value; ``attrgetter`` gives no tuple for fewer than two names."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple(getattr(value, name) for name in names)
