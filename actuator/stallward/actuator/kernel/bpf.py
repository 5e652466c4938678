"""Programs of the kernel (eBPF): the types of its structures, the code, and bpf(2)."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

from stallward.actuator.errors import NodeError, SensorError
from stallward.agent.errors import StallwardError

# ---------- The kernel's type information (BTF): its functions, and the offsets of fields
# It is read in one pass over ``/sys/kernel/btf/vmlinux`` (about 5 MB; Documentation/bpf/btf.rst).
# Names and offsets differ between kernels, so none is fixed in the code: they are looked up on the
# node, and a signal that needs a missing one is absent with a reason.

_MAGIC: Final = 0xEB9F
_HEADER: Final = struct.Struct("<HBBIIIII")
_TYPE: Final = struct.Struct("<III")
_MEMBER: Final = struct.Struct("<III")
_POINTER, _STRUCT, _UNION, _ENUM, _TYPEDEF, _PROTO = 2, 4, 5, 6, 8, 13
_MODIFIERS: Final = frozenset({9, 10, 11, 18})
"""The kinds volatile, const, restrict and type tag."""
_MAX_DEPTH: Final = 8
"""How deep anonymous structs and unions are searched; the kernel nests them two or three deep."""

# Bytes that follow the common header of a type, by kind: a fixed part, and one per element.
_FIXED: Final = (0, 4, 0, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 4, 0, 0)
_EACH: Final = (0, 0, 0, 0, 12, 12, 8, 0, 0, 0, 0, 0, 0, 8, 0, 12, 0, 0, 0, 12)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFunction:
    """The hook of a tracepoint, a function of the kernel."""

    name: str
    type_id: int
    """The BTF type number by which a program is attached."""
    arguments: tuple[str, ...]


class Btf:
    """The types of one kernel.

    Args:
        content: The whole file.
        path: The file, for errors.
        names: The tracepoints, structures and enumerations that will be looked up.

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


# ---------- eBPF instructions as bytes: just enough of an assembler for the programs of the page cache
# A node has no compiler, and the programs are short. The encoding never changes
# (Documentation/bpf/standardization/instruction-set.rst): eight bytes an instruction.

R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, FP = range(11)
"""Registers: R0 result, R1-R5 arguments (lost in calls), R6-R9 kept, FP the stack's top."""

SIZES: Final = {4: 0x00, 8: 0x18}
_OPERATIONS: Final = {"+": 0x00, "-": 0x10, "&": 0x50, ">>": 0x70, "=": 0xB0}
_CONDITIONS: Final = {
    "==": 0x10,
    ">": 0x20,
    ">=": 0x30,
    "&": 0x40,
    "!=": 0x50,
    "s>": 0x60,
    "<": 0xA0,
    "<=": 0xB0,
    "s<=": 0xD0,
}
_INSTRUCTION: Final = struct.Struct("<BBhi")
_PSEUDO_MAP_FD: Final = 1


class Assembler:
    """Collects instructions; jumps name labels that may come later.

    Every method appends one instruction. A ``value`` is a number, or a register where ``reg``
    is given instead.
    """

    def __init__(self) -> None:
        self._code: list[tuple[int, int, int, int]] = []
        self._labels: dict[str, int] = {}
        self._jumps: dict[int, str] = {}

    def _add(self, code: int, dst: int = 0, src: int = 0, offset: int = 0, value: int = 0) -> None:
        self._code.append((code, src << 4 | dst, offset, value))

    def alu(self, dst: int, operation: str, value: int = 0, *, reg: int | None = None) -> None:
        """``dst operation= value``, on 64 bits."""
        code = 0x07 | _OPERATIONS[operation]
        self._add(code | (reg is not None) << 3, dst, reg or 0, value=value)

    def load(self, dst: int, base: int, offset: int = 0, size: int = 8) -> None:
        """``dst = *(base + offset)``."""
        self._add(0x61 | SIZES[size], dst, base, offset)

    def store(self, base: int, offset: int, src: int, size: int = 8) -> None:
        """``*(base + offset) = src``."""
        self._add(0x63 | SIZES[size], base, src, offset)

    def store_value(self, base: int, offset: int, value: int, size: int = 8) -> None:
        """``*(base + offset) = value``."""
        self._add(0x62 | SIZES[size], base, 0, offset, value)

    def load_map(self, dst: int, fd: int) -> None:
        """``dst`` = the map behind a descriptor (two instructions long)."""
        self._add(0x18, dst, _PSEUDO_MAP_FD, value=fd)
        self._add(0x00)

    def call(self, helper: int) -> None:
        """Call a helper of the kernel, by its number in linux/bpf.h."""
        self._add(0x85, value=helper)

    def jump(self, label: str) -> None:
        """Jump to a label."""
        self._jumps[len(self._code)] = label
        self._add(0x05)

    def jump_if(
        self, left: int, condition: str, value: int = 0, *, reg: int | None = None, to: str
    ) -> None:
        """Jump to the label ``to`` if ``left condition value``, on 64 bits."""
        self._jumps[len(self._code)] = to
        self._add(0x05 | _CONDITIONS[condition] | (reg is not None) << 3, left, reg or 0, 0, value)

    def label(self, name: str) -> None:
        """Give the next instruction a label."""
        if name in self._labels:
            raise StallwardError(f"Label {name!r} is there twice.")
        self._labels[name] = len(self._code)

    def end(self) -> None:
        """Return."""
        self._add(0x95)

    def assemble(self) -> bytes:
        """Return the program's bytes.

        Raises:
            StallwardError: If the label of a jump is missing.
        """
        lines = []
        for at, (code, registers, offset, value) in enumerate(self._code):
            target = offset
            if at in self._jumps:
                if self._jumps[at] not in self._labels:
                    raise StallwardError(f"There is no label {self._jumps[at]!r}.")
                target = self._labels[self._jumps[at]] - at - 1
            lines.append(_INSTRUCTION.pack(code, registers, target, value))
        return b"".join(lines)


# ---------- The bpf(2) system call by ctypes: maps, programs and links, with nothing to install
# The attributes are a stable interface (include/uapi/linux/bpf.h); attributes that are not named
# here are zero. Maps, programs and links live only as long as their descriptors: none is pinned.

_NUMBERS: Final = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "loongarch64": 280}
_MAP_CREATE, _MAP_LOOKUP, _PROG_LOAD, _RAW_TRACEPOINT_OPEN, _DRAIN = 0, 1, 5, 17, 25
_TRACING: Final = 26
HASH, ARRAY, PERCPU_HASH, PERCPU_ARRAY = 1, 2, 5, 6
"""Types of maps."""
TRACEPOINT, FEXIT = 23, 25
"""Attach types: at a tracepoint, or when a function of the kernel returns."""

_NAME_BYTES: Final = 15
_LOG_BYTES: Final = 65536
_LOG_LINES: Final = 12
_LICENSE: Final = b"GPL\0"
"""The kernel lets only programs under a GPL-compatible licence follow its pointers."""


class BpfRefusedError(NodeError):
    """Raised when the kernel refuses a bpf(2) call."""

    number: int = 0
    """The errno; 0 if it is not known."""

    @classmethod
    def of(cls, what: str, number: int, log: str = "") -> Self:
        """Make the error of one call.

        Args:
            what: What was refused.
            number: The errno.
            log: The verifier's message, if there is one.
        """
        rights = number in {errno.EPERM, errno.EACCES} and not log
        error = cls(
            f"{what}: {os.strerror(number)}{log and f'; the verifier says: {log}'}",
            next_step="It takes CAP_BPF and CAP_PERFMON." if rights else "",
        )
        error.number = number
        return error


class BpfSyscall:
    """The bpf(2) system call on this machine.

    Raises:
        NodeError: If the call's number is not known for this architecture.
    """

    def __init__(self) -> None:
        machine = os.uname().machine
        if machine not in _NUMBERS or sys.byteorder != "little":
            raise NodeError(f"eBPF is not supported on {machine}.")
        self._number = _NUMBERS[machine]
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.syscall.restype = ctypes.c_long

    def call(self, command: int, attributes: ctypes.Array[ctypes.c_char]) -> int:
        """Make one call; returns the result, or the errno as a negative number."""
        result = int(
            self._libc.syscall(
                ctypes.c_long(self._number),
                ctypes.c_int(command),
                attributes,
                ctypes.c_uint(len(attributes)),
            )
        )
        return result if result >= 0 else -ctypes.get_errno()

    def _make(self, what: str, command: int, attributes: bytes) -> int:
        fd = self.call(command, ctypes.create_string_buffer(attributes, len(attributes)))
        if fd < 0:
            raise BpfRefusedError.of(what, -fd)
        return fd

    def create_map(
        self, name: str, kind: int, *, key_size: int, value_size: int, max_entries: int
    ) -> int:
        """Make a map; returns its descriptor.

        Raises:
            BpfRefusedError: If the kernel refuses it.
        """
        attributes = struct.pack(
            "<7I16s", kind, key_size, value_size, max_entries, 0, 0, 0, name.encode()[:_NAME_BYTES]
        )
        return self._make(f"map {name}", _MAP_CREATE, attributes)

    def lookup(self, fd: int, key: bytes, value_size: int) -> bytes:
        """Return the value of a key in a map; of a per-CPU map, the values of all CPUs.

        Raises:
            BpfRefusedError: If the map lacks the key.
        """
        key_buffer = ctypes.create_string_buffer(key, len(key))
        value = ctypes.create_string_buffer(value_size)
        addresses = (ctypes.addressof(key_buffer), ctypes.addressof(value))
        self._make("reading a map", _MAP_LOOKUP, struct.pack("<I4x3Q", fd, *addresses, 0))
        return value.raw

    def load_program(self, name: str, code: bytes, *, attach_type: int, attach_to: int) -> int:
        """Load a program that runs at a hook in the kernel; returns its descriptor.

        Args:
            name: The name that tools show, up to 15 bytes.
            code: The instructions.
            attach_type: ``TRACEPOINT`` or ``FEXIT``.
            attach_to: The hook's BTF type number.

        Raises:
            BpfRefusedError: If the kernel refuses it; with the end of the verifier's log.
        """
        instructions = ctypes.create_string_buffer(code, len(code))
        licence = ctypes.create_string_buffer(_LICENSE)
        log = ctypes.create_string_buffer(_LOG_BYTES)
        fd = 0
        for log_bytes in (0, _LOG_BYTES):  # the log costs time, so it is read only after an error
            attributes = struct.pack(
                "<2I2Q2IQ2I16s4IQ2IQ3I4x",
                *(_TRACING, len(code) // 8),
                *(ctypes.addressof(instructions), ctypes.addressof(licence)),
                *(int(log_bytes > 0), log_bytes, ctypes.addressof(log) if log_bytes else 0),
                *(0, 0, name.encode()[:_NAME_BYTES], 0, attach_type, 0, 0),
                *(0, 0, 0, 0, 0, attach_to, 0),
            )
            fd = self.call(_PROG_LOAD, ctypes.create_string_buffer(attributes, len(attributes)))
            if fd >= 0:
                return fd
        text = log.value.decode("utf-8", "replace").strip().splitlines()
        raise BpfRefusedError.of(f"program {name}", -fd, " | ".join(text[-_LOG_LINES:]))

    def attach(self, name: str, program_fd: int) -> int:
        """Attach a loaded program; the link lasts as long as the descriptor.

        Raises:
            BpfRefusedError: If the kernel refuses it.
        """
        attributes = struct.pack("<QI4x", 0, program_fd)
        return self._make(f"attaching {name}", _RAW_TRACEPOINT_OPEN, attributes)


def possible_cpus(sys: Path) -> int:
    """How many values a per-CPU map holds for each key.

    Args:
        sys: Where sysfs is.

    Raises:
        NodeError: If the kernel does not say.
    """
    path = sys / "devices/system/cpu/possible"
    try:
        ranges = [part.split("-") for part in path.read_text(encoding="ascii").split(",")]
        return sum(int(one[-1]) - int(one[0]) + 1 for one in ranges)
    except (OSError, ValueError) as error:
        raise NodeError(f"{path}: {error}") from error


class Drain:
    """Takes the entries out of a per-CPU hash map, some at a time.

    Args:
        bpf: The system call.
        fd: The map.
        key_size: Bytes of a key.
        value_size: Bytes of a value on one CPU, a multiple of 8.
        cpus: How many values each key has.
        batch: How many entries one call takes at most.
    """

    def __init__(
        self, bpf: BpfSyscall, fd: int, *, key_size: int, value_size: int, cpus: int, batch: int
    ) -> None:
        self._bpf = bpf
        self._batch = batch
        self.keys = ctypes.create_string_buffer(key_size * batch)
        """The keys taken by the last call."""
        self.values = ctypes.create_string_buffer(value_size * cpus * batch)
        """The values taken by the last call: for each key one value per CPU."""
        self._cursor = ctypes.create_string_buffer(8)
        self._attributes = ctypes.create_string_buffer(56)
        self._pack = struct.Struct("<4Q2I2Q").pack_into
        addresses = (ctypes.addressof(part) for part in (self._cursor, self.keys, self.values))
        self._cursor_at, self._keys_at, self._values_at = addresses
        self._fd = fd
        self._going = False

    def take(self) -> tuple[int, bool]:
        """Take up to ``batch`` entries; returns their number and whether there may be more.

        The next call continues where this one ended.

        Raises:
            BpfRefusedError: If the kernel refuses it.
        """
        start = self._cursor_at if self._going else 0
        self._pack(
            self._attributes,
            0,
            *(start, self._cursor_at, self._keys_at, self._values_at),
            *(self._batch, self._fd, 0, 0),
        )
        result = self._bpf.call(_DRAIN, self._attributes)
        if result not in {0, -errno.ENOENT}:
            self._going = False
            raise BpfRefusedError.of("reading a map", -result)
        # ENOENT: the end of the map was reached; the count is right all the same.
        self._going = result == 0
        return struct.unpack_from("<I", self._attributes, 32)[0], self._going
