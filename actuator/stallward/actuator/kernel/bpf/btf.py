"""The kernel's type information (BTF): its functions, and the offsets of fields.

It is read in one pass over ``/sys/kernel/btf/vmlinux`` (about 5 MB; Documentation/bpf/btf.rst).
Names and offsets differ between kernels, so none is fixed in the code: they are looked up on the
node, and a signal that needs a missing one is absent with a reason.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from stallward.actuator.errors import SensorError

_MAGIC: Final = 0xEB9F
_HEADER: Final = struct.Struct("<HBBIIIII")
_TYPE: Final = struct.Struct("<III")
_MEMBER: Final = struct.Struct("<III")
_POINTER, _STRUCT, _UNION, _ENUM, _TYPEDEF, _FUNC, _PROTO = 2, 4, 5, 6, 8, 12, 13
_MODIFIERS: Final = frozenset({9, 10, 11, 18})
"""The kinds volatile, const, restrict and type tag."""
_MAX_DEPTH: Final = 8
"""How deep anonymous structs and unions are searched; the kernel nests them two or three deep."""

# Bytes that follow the common header of a type, by kind: a fixed part, and one per element.
_FIXED: Final = (0, 4, 0, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 4, 0, 0)
_EACH: Final = (0, 0, 0, 0, 12, 12, 8, 0, 0, 0, 0, 0, 0, 8, 0, 12, 0, 0, 0, 12)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFunction:
    """A function of the kernel, or the hook of a tracepoint."""

    name: str
    type_id: int
    """The BTF type number by which a program is attached."""
    arguments: tuple[str, ...]


class Btf:
    """The types of one kernel.

    Args:
        content: The whole file.
        path: The file, for errors.
        names: The functions, structures and enumerations that will be looked up.

    Raises:
        SensorError: If this is not type information, or of an unknown form.
    """

    def __init__(self, content: bytes, path: Path, names: Iterable[str]) -> None:
        self._path = path
        if len(content) < _HEADER.size:
            raise SensorError(path, f"only {len(content)} bytes of type information")
        magic, version, _, length, types, types_size, names_at, names_size = _HEADER.unpack_from(
            content
        )
        if magic != _MAGIC or version != 1:
            raise SensorError(path, f"not type information (magic {magic:#x}, version {version})")
        end = length + max(types + types_size, names_at + names_size)
        if end > len(content) or types_size % 4:
            raise SensorError(path, f"{len(content)} bytes, {end} are announced")
        self._content = content  # not copied: this process must stay small
        self._types = range(length + types, length + types + types_size)
        self._names = range(length + names_at, length + names_at + names_size)
        self._wanted = {offset: name for name in names for offset in self._offsets(name)}
        self._numbers: dict[str, list[int]] = {}
        self._starts = self._index()

    def _index(self) -> array[int]:
        """Find where each type starts, by its number; also note the numbers of wanted types."""
        starts = array("I", [0])  # type 0 is void and not in the file
        content, unpack, add = self._content, struct.Struct("<II").unpack_from, starts.append
        wanted, at, end = self._wanted, self._types.start, self._types.stop
        try:
            while at < end:
                name, info = unpack(content, at)
                if name in wanted:
                    self._numbers.setdefault(wanted[name], []).append(len(starts))
                add(at)
                kind = info >> 24 & 31
                at += 12 + _FIXED[kind] + _EACH[kind] * (info & 0xFFFF)
        except (struct.error, IndexError) as error:
            raise SensorError(self._path, f"type {len(starts) - 1}: {error}") from error
        if at != end:
            raise SensorError(self._path, f"type {len(starts) - 1} is cut off")
        return starts

    def _type(self, number: int) -> tuple[int, int, int, int, int]:
        """Read name offset, kind, element count, size or referred type, and start of the rest."""
        if not 0 < number < len(self._starts):
            raise SensorError(self._path, f"there is no type {number}")
        at = self._starts[number]
        name, info, size = _TYPE.unpack_from(self._content, at)
        return name, info >> 24 & 31, info & 0xFFFF, size, at + _TYPE.size

    def _name(self, offset: int) -> str:
        start = self._names.start + offset
        end = self._content.find(b"\0", start, self._names.stop)
        return self._content[start:end].decode("ascii", "replace")

    def _offsets(self, name: str) -> frozenset[int]:
        """The offsets at which a name stands in the table (one may be the tail of another)."""
        offsets, wanted = set(), name.encode() + b"\0"
        start, end = self._names.start, self._names.stop
        at = self._content.find(wanted, start, end)
        while at >= 0:
            offsets.add(at - start)
            at = self._content.find(wanted, at + 1, end)
        return frozenset(offsets)

    def _named(self, name: str, kind: int) -> list[int]:
        return [number for number in self._numbers.get(name, ()) if self._type(number)[1] == kind]

    def function(self, name: str) -> KernelFunction | None:
        """Return a function; ``None`` if this kernel lacks it."""
        for number in self._named(name, _FUNC):
            return self._function(name, number, self._type(number)[3])
        return None

    def tracepoint(self, name: str) -> KernelFunction | None:
        """Return the hook of a tracepoint (``btf_trace_...``); ``None`` if the kernel lacks it."""
        for number in self._named(name, _TYPEDEF):
            _, kind, _, target, _ = self._type(self._type(number)[3])
            if kind == _POINTER:
                hook = self._function(name, number, target)
                # The first argument is private to the tracing code.
                return replace(hook, arguments=hook.arguments[1:])
        return None

    def _function(self, name: str, number: int, prototype: int) -> KernelFunction:
        _, kind, count, _, rest = self._type(prototype)
        if kind != _PROTO:
            raise SensorError(self._path, f"{name} has no prototype")
        arguments = tuple(self._name(offset) for offset in self._pairs(rest, count)[::2])
        return KernelFunction(name=name, type_id=number, arguments=arguments)

    def _pairs(self, start: int, count: int) -> tuple[int, ...]:
        try:
            return struct.unpack_from(f"<{2 * count}I", self._content, start)
        except struct.error as error:
            raise SensorError(self._path, f"a list is cut off: {error}") from error

    def field_offset(self, structure: str, *fields: str) -> int | None:
        """Return the offset in bytes of the first of ``fields`` that a structure has."""
        for number in self._named(structure, _STRUCT):
            for field in fields:
                bits = self._find_field(number, self._offsets(field), _MAX_DEPTH, set())
                if bits is not None:
                    return bits // 8
        return None

    def _find_field(
        self, number: int, names: frozenset[int], depth: int, seen: set[int]
    ) -> int | None:
        """Find the offset of a field in bits; types in ``seen`` have been searched already."""
        _, kind, count, target, rest = self._type(number)
        while kind in _MODIFIERS and number not in seen:
            seen.add(number)
            number = target
            _, kind, count, target, rest = self._type(number)
        if kind not in {_STRUCT, _UNION} or depth == 0 or number in seen:
            return None
        seen.add(number)
        for name, member, bits in _MEMBER.iter_unpack(
            self._content[rest : rest + count * _MEMBER.size]
        ):
            offset = bits & 0xFFFFFF  # the top byte is the width of a bit field
            if name in names:
                return int(offset)
            if name == 0:
                inner = self._find_field(member, names, depth - 1, seen)
                if inner is not None:
                    return int(offset) + inner
        return None

    def enumerator(self, enumeration: str, name: str) -> int | None:
        """Return the value of a constant; ``None`` if the enumeration lacks it."""
        names = self._offsets(name)
        for number in self._named(enumeration, _ENUM):
            _, _, count, _, rest = self._type(number)
            pairs = self._pairs(rest, count)
            for offset, value in zip(pairs[::2], pairs[1::2], strict=True):
                if offset in names:
                    return int(value)
        return None
