"""The bpf(2) system call by ctypes: maps, programs and links, with nothing to install.

The attributes are a stable interface (include/uapi/linux/bpf.h); attributes that are not named
here are zero. Maps, programs and links live only as long as their descriptors: none is pinned.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys
from pathlib import Path
from typing import Final, Self

from stallward.actuator.errors import NodeError

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
        last = path.read_text(encoding="ascii").strip().replace("-", ",").split(",")[-1]
        return int(last) + 1
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
