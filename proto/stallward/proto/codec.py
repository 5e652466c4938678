"""Conversion between frozen dataclasses and messages, derived from the fields of both.

A :class:`Codec` is made once for a dataclass and its message, and refused at once where they do
not fit. A field of the dataclass is the field of the same name in the message:

- a number, a text or a flag as it is; ``None`` where an optional field is absent
- a dataclass as a message; where the message is absent, the field has its default
- an enumeration as one whose names have a prefix, by an :class:`EnumCodec`
- a tuple as a repeated field. One that may be ``None`` is so where the field ``NAME_known`` says
  that it is not known, or where it is empty if there is no such field
- pairs of a key and a value, sorted by their keys, as a map

What a dataclass does otherwise is said where its codec is made. All plans are made at import, so
that no tick waits for one.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from numbers import Integral, Real
from operator import attrgetter
from types import MappingProxyType, NoneType, UnionType
from typing import (
    Any,
    Final,
    Generic,
    Literal,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

Parts = dict[str, Any]
"""The keyword arguments of a message's class."""
_Convert = Callable[[Any], Any]
_D = TypeVar("_D")
_M = TypeVar("_M", bound=Message)
_E = TypeVar("_E", bound=Enum)
_BOUNDS: Final = {
    FieldDescriptor.CPPTYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, (1 << 32) - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, (1 << 64) - 1),
}
"""The least and the greatest number of each whole type of the wire."""
_REAL: Final = frozenset({FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT})
_GREATEST: Final = sys.float_info.max
_SCALARS: Final = {
    int: frozenset(_BOUNDS),
    float: _REAL,
    bool: frozenset({FieldDescriptor.CPPTYPE_BOOL}),
    str: frozenset({FieldDescriptor.CPPTYPE_STRING}),
}
"""The types of the wire that hold a type of Python."""


@dataclasses.dataclass(frozen=True, slots=True)
class Own:
    """How a field is converted that no field of the message corresponds to."""

    write: Callable[[Any], Parts]
    """Returns the fields of the message; it is given the whole value of the dataclass."""
    read: Callable[[Any], Any]
    """Returns the field's value; it is given the whole message."""


class EnumCodec(Generic[_E]):
    """Converts between an enumeration and the one of the wire with the same members.

    Args:
        domain: The enumeration.
        wire: The enumeration of the wire, whose names have a prefix.
        unspecified: The member that is ``UNSPECIFIED`` on the wire, if one is.
        unknown: Returns the member for a number that has none, or raises; by default it is
            ``unspecified``.

    Raises:
        KeyError: If the wire lacks a member.
    """

    def __init__(
        self,
        domain: type[_E],
        wire: EnumTypeWrapper,
        *,
        unspecified: _E | None = None,
        unknown: Callable[[int], _E] | None = None,
    ) -> None:
        descriptor: EnumDescriptor = wire.DESCRIPTOR
        prefix = descriptor.values_by_number[0].name.removesuffix("UNSPECIFIED")
        names = {one: "UNSPECIFIED" if one is unspecified else one.name for one in domain}
        numbers = {
            one: descriptor.values_by_name[f"{prefix}{name}"].number for one, name in names.items()
        }
        members = {number: member for member, number in numbers.items()}
        if unknown is None:
            unspecified = members[0]
            unknown = lambda _: unspecified  # noqa: E731
        self.key = (domain, descriptor.full_name)
        self.to_wire: Final[Callable[[_E], Any]] = numbers.__getitem__
        """Returns the number of a member."""
        self.get: Final[Callable[[int], _E | None]] = members.get
        """Returns the member of a number; ``None`` if there is none."""
        self._unknown = unknown

    def from_wire(self, number: int) -> _E:
        """Return the member of a number."""
        member = self.get(number)
        return self._unknown(number) if member is None else member


class Codec(Generic[_D, _M]):
    """Converts between a dataclass and its message.

    Args:
        domain: The dataclass.
        wire: The message.
        fields: The fields of the dataclass that are not simply the field of the same name: the
            name in the message; the codec of a dataclass whose fields lie in this message, too;
            the functions that convert it; or ``None`` for a field that is not on the wire.
        use: The codecs of the dataclasses and enumerations inside. Other dataclasses get one
            without exceptions.
        make: Makes the value from the fields by their names, if not the dataclass itself.
        fit: Whether a number that the wire cannot hold becomes the nearest that it can.

    Raises:
        TypeError: If a field of the dataclass fits no field of the message.
    """

    def __init__(
        self,
        domain: type[_D],
        wire: type[_M],
        *,
        fields: Mapping[str, str | Codec[Any, Any] | Own | None] = MappingProxyType({}),
        use: Iterable[Codec[Any, Any] | EnumCodec[Any]] = (),
        make: Callable[..., _D] | None = None,
        fit: bool = False,
    ) -> None:
        self.key = (domain, wire.DESCRIPTOR.full_name)
        self._wire, self._make, self._fit = wire, make or domain, fit
        self._known = {one.key: one for one in use}
        self._scalars: list[tuple[str, str, bool]] = []
        """The fields that are read as they are: their names, there, and whether optional."""
        self._readers: list[tuple[str, _Convert]] = []
        """The other fields, and what reads each from the message."""
        self._written = _Written()
        hints = get_type_hints(domain)
        for field in dataclasses.fields(domain):  # type: ignore[arg-type]
            match fields.get(field.name, field.name):
                case str() as name:
                    self._plan(field, hints[field.name], name)
                case Codec() as inside:
                    self._written.take_in(field.name, inside._written)
                    self._readers.append((field.name, inside.from_wire))
                case Own() as own:
                    self._written.owns.append(own.write)
                    self._readers.append((field.name, own.read))
        self._absent = {name: None for name, _, optional in self._scalars if optional}
        self.parts: Final = self._written.function()
        """Returns the fields of the message of a value, and those of the messages in it. A message
        made of messages is copied part by part, which takes 1.5 times as long."""

    def to_wire(self, value: _D) -> _M:
        """Return the message of a value.

        Raises:
            ValueError: If a number does not fit the wire's type, unless it is made to.
        """
        parts = self.parts(value)
        return make_message(self._wire, parts) if self._fit else self._wire(**parts)

    def from_wire(self, message: _M) -> _D:
        """Return the value of a message."""
        arguments: Parts = self._absent.copy()
        present = message.HasField
        for name, wire, optional in self._scalars:
            if not optional or present(wire):
                arguments[name] = getattr(message, wire)
        for name, read in self._readers:
            arguments[name] = read(message)
        return self._make(**arguments)

    def _plan(self, field: dataclasses.Field[Any], hint: Any, name: str) -> None:
        """Plan how a field is converted that is the field ``name`` of the message."""
        wire: Any = self._wire.DESCRIPTOR.fields_by_name.get(name)
        inner, optional = _without_none(hint)
        own = field.name
        if wire is None or (
            wire.is_repeated and not _is_map(wire) and get_origin(inner) is not tuple
        ):
            raise self._misfit(own, hint)
        if _is_map(wire):
            self._written.one.append((own, name, dict))
            self._readers.append((own, lambda m: tuple(sorted(getattr(m, name).items()))))
        elif wire.is_repeated:
            self._plan_repeated(own, get_args(inner)[0], wire, optional=optional)
        elif (codec := self._inside(own, inner, wire)) is None:
            if optional != wire.has_presence:
                raise self._misfit(own, hint)
            self._written.same.append((own, name, optional))
            self._scalars.append((own, name, optional))
        elif isinstance(codec, EnumCodec):
            self._written.one.append((own, name, codec.to_wire))
            self._readers.append((own, lambda m: codec.from_wire(getattr(m, name))))
        else:
            self._written.one.append((own, name, codec.parts))
            self._readers.append((own, _message_reader(name, codec, field, optional=optional)))

    def _plan_repeated(
        self, own: str, item: Any, wire: FieldDescriptor, *, optional: bool
    ) -> None:
        name, flag = wire.name, f"{wire.name}_known"
        codec = self._inside(own, item, wire)
        if codec is None:
            self._written.same.append((own, name, optional))
            read: _Convert = lambda m: tuple(getattr(m, name))  # noqa: E731
        else:
            write = codec.parts if isinstance(codec, Codec) else codec.to_wire
            one_from_wire = codec.from_wire
            self._written.many.append((own, name, write))
            read = lambda m: tuple([one_from_wire(one) for one in getattr(m, name)])  # noqa: E731
        if optional and flag in self._wire.DESCRIPTOR.fields_by_name:
            self._written.one.append((own, flag, lambda _: True))
            self._readers.append((own, lambda m: read(m) if getattr(m, flag) else None))
        elif optional:
            self._readers.append((own, lambda m: read(m) or None))
        else:
            self._readers.append((own, read))

    def _inside(
        self, own: str, hint: Any, wire: FieldDescriptor
    ) -> Codec[Any, Any] | EnumCodec[Any] | None:
        """Return the codec of a field's values; ``None`` if they are the same on the wire."""
        of = wire.message_type or wire.enum_type
        if of is None:
            python = type(get_args(hint)[0]) if get_origin(hint) is Literal else hint
            if wire.cpp_type not in _SCALARS.get(python, ()):
                raise self._misfit(own, hint)
            return None
        key = (hint, of.full_name)
        if key not in self._known:
            if wire.message_type is None or not dataclasses.is_dataclass(hint):
                raise self._misfit(own, hint)
            domain, message = cast("type[Any]", hint), GetMessageClass(wire.message_type)
            self._known[key] = Codec(domain, message, use=tuple(self._known.values()))
        return self._known[key]

    def _misfit(self, name: str, hint: Any) -> TypeError:
        domain, wire = self.key
        return TypeError(f"{domain.__name__}.{name}, {hint}, fits no field of {wire}.")


@dataclasses.dataclass(slots=True)
class _Written:
    """What writes a dataclass: its fields, with their names in the message."""

    same: list[tuple[str, str, bool]] = dataclasses.field(default_factory=list)
    """Those that are written as they are, and whether each may be ``None``."""
    one: list[tuple[str, str, _Convert]] = dataclasses.field(default_factory=list)
    """Those that are converted, unless they are ``None``."""
    many: list[tuple[str, str, _Convert]] = dataclasses.field(default_factory=list)
    """Those that are converted value by value."""
    owns: list[Callable[[Any], Parts]] = dataclasses.field(default_factory=list)
    """What writes the others."""

    def take_in(self, field: str, inside: _Written) -> None:
        """Write the fields of the dataclass in a field, which lie in the same message."""
        self.same += [(f"{field}.{own}", name, optional) for own, name, optional in inside.same]
        self.one += [(f"{field}.{own}", name, write) for own, name, write in inside.one]
        self.many += [(f"{field}.{own}", name, write) for own, name, write in inside.many]
        for write in inside.owns:
            self.owns.append(lambda value, write=write: write(getattr(value, field)))  # type: ignore[misc]

    def function(self) -> Callable[[Any], Parts]:
        """Return what does it. It runs at each tick, so nothing is looked up in it twice."""
        values, names = _getter([name for name, *_ in self.same]), [one[1] for one in self.same]
        converted = [(attrgetter(field), name, write) for field, name, write in self.one]
        repeated = [(attrgetter(field), name, write) for field, name, write in self.many]
        owns = self.owns

        def all_same(value: Any) -> Parts:
            return dict(zip(names, values(value), strict=True))

        def same(value: Any) -> Parts:
            items = zip(names, values(value), strict=True)
            return {name: item for name, item in items if item is not None}

        flat = same if any(optional for _, _, optional in self.same) else all_same

        def nested(value: Any) -> Parts:
            parts = flat(value)
            for get, name, write in converted:
                item = get(value)
                if item is not None:
                    parts[name] = write(item)
            for get, name, write in repeated:
                if items := get(value):
                    parts[name] = [write(one) for one in items]
            for own in owns:
                parts |= own(value)
            return parts

        return nested if converted or repeated or owns else flat


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _message_reader(
    name: str, codec: Codec[Any, Any], field: dataclasses.Field[Any], *, optional: bool
) -> _Convert:
    """Return what reads a message; an absent one is the default of its field."""
    absent = None
    if field.default_factory is not dataclasses.MISSING:
        absent = field.default_factory()
    elif field.default is not dataclasses.MISSING:
        absent = field.default
    elif not optional:
        return lambda m: codec.from_wire(getattr(m, name))
    return lambda m: codec.from_wire(getattr(m, name)) if m.HasField(name) else absent


def _without_none(hint: Any) -> tuple[Any, bool]:
    """Return a type without ``None``, and whether it may be that."""
    if get_origin(hint) not in {Union, UnionType}:
        return hint, False
    rest = [one for one in get_args(hint) if one is not NoneType]
    return rest[0] if len(rest) == 1 else hint, len(rest) < len(get_args(hint))


def _getter(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Make a reader of attributes; ``attrgetter`` returns no tuple for fewer than two names."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple(getattr(value, name) for name in names)


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
    """Return the fields with values that fit; what is neither a number nor text stays as it is.

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
