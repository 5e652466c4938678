"""eBPF instructions as bytes: just enough of an assembler for the programs of the page cache.

A node has no compiler, and the programs are short. The encoding never changes
(Documentation/bpf/standardization/instruction-set.rst): eight bytes an instruction.
"""

from __future__ import annotations

import struct
from typing import Final

from stallward.agent.errors import StallwardError

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

    def zero_extend(self, dst: int) -> None:
        """Clear the upper half of ``dst``, which holds a C ``int``."""
        self._add(0xBC, dst, dst)

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
