"""Steps that the page-cache programs share: the record of a thread, and counting.

R7 points to the record of the thread; R9 holds its process and thread id. Each step says which
other registers it uses and sets; R1 to R5 are overwritten where it does not say.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from stallward.actuator.errors import NodeError
from stallward.actuator.kernel.bpf import (
    FP,
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    Assembler,
    Btf,
    KernelFunction,
)


class Kernel:
    """The layout of the running kernel.

    Args:
        btf: The kernel's types.
    """

    def __init__(self, btf: Btf) -> None:
        self._btf = btf
        self.last_index_is_behind = False
        """Whether ``mm_filemap_get_pages`` gives the index after the last page: a bug that newer
        kernels have fixed ("filemap: fix the last_index of mm_filemap_get_pages")."""

    def tracepoint(self, name: str, arguments: int) -> KernelFunction:
        """Return a tracepoint that has this number of arguments.

        Raises:
            NodeError: If there is no such tracepoint.
        """
        hook = self._btf.tracepoint(f"btf_trace_{name}")
        if hook is None:
            raise NodeError(f"this kernel has no tracepoint {name} (Linux 6.12 or later has)")
        if len(hook.arguments) != arguments:
            raise NodeError(f"{name} has ({', '.join(hook.arguments)}) in this kernel")
        return hook

    def field(self, structure: str, field: str) -> int:
        """Return the offset of a field in a structure, in bytes.

        Raises:
            NodeError: If there is no such field.
        """
        offset = self._btf.field_offset(structure, field)
        if offset is None:
            raise NodeError(f"this kernel has no {structure}.{field}")
        return offset

    def large_folio(self) -> tuple[int, int] | None:
        """Return a large folio's flag and its page count's offset; ``None`` if unknown."""
        head = self._btf.enumerator("pageflags", "PG_head")
        count = self._btf.field_offset("folio", "_nr_pages", "_folio_nr_pages")
        return None if head is None or count is None else (1 << head, count)


THREADS: Final = 2048
"""How many threads have a record, by the low bits of their id; a power of two."""
THREAD_BYTES: Final = 72
KEY_BYTES: Final = 16
"""A key holds a cgroup id and a process id."""
COUNT_BYTES: Final = 16
"""A count holds hits and misses."""

_LOOKUP, _UPDATE, _PID_TGID, _CGROUP_ID = 1, 2, 14, 80
_NOEXIST: Final = 1
_HITS, _MISSES = 0, 8

# The record of a thread: its run, and its pending lookup (mapping 0: none).
OWNER, RUN_MAPPING, RUN_START, RUN_END, FRESH = 0, 8, 16, 24, 32
MAPPING, FIRST, END, KIND = 40, 48, 56, 64
READ, FAULT, MAP = 0, 1, 2

# On the stack: the event, then the counts and the keys to count at.
NEW_MAPPING, NEW_FIRST, NEW_END = -8, -16, -24
_NEW_HITS, _NEW_MISSES = -40, -32
_KEY, _ZERO, _INDEX = -56, -72, -80


def pending_pages(thread: bytes) -> int:
    """How many pages the pending lookup is for, from the record of a thread."""
    first, end = struct.unpack_from("<2Q", thread, FIRST)
    return int(end - first)


@dataclass(frozen=True, slots=True, kw_only=True)
class Maps:
    """Descriptors of the maps that the programs share."""

    counts: int
    overflow: int
    """The map of counts for which ``counts`` had no room."""
    threads: int


def address(asm: Assembler, register: int, offset: int) -> None:
    """Set ``register`` to an address on the stack."""
    asm.alu(register, "=", reg=FP)
    asm.alu(register, "+", offset)


def find_thread(asm: Assembler, maps: Maps) -> None:
    """Set R9 to the process and thread id, and R7 to the thread's record, empty if it is new."""
    asm.call(_PID_TGID)
    asm.alu(R9, "=", reg=R0)
    asm.alu(R0, "&", THREADS - 1)
    asm.store(FP, _INDEX, R0, size=4)
    asm.load_map(R1, maps.threads)
    address(asm, R2, _INDEX)
    asm.call(_LOOKUP)
    asm.jump_if(R0, "==", 0, to="end")  # it never is, but the verifier cannot know
    asm.alu(R7, "=", reg=R0)
    asm.load(R1, R7, OWNER)
    asm.jump_if(R1, "==", reg=R9, to="known")
    asm.store(R7, OWNER, R9)
    asm.store_value(R7, FRESH, 0)
    asm.store_value(R7, MAPPING, 0)
    asm.label("known")


def folio(asm: Assembler, kernel: Kernel) -> None:
    """Set R6 to the mapping, R4 to the first page and R8 to the page count of the folio in R1."""
    asm.load(R6, R1, kernel.field("folio", "mapping"))
    asm.load(R4, R1, kernel.field("folio", "index"))
    asm.alu(R8, "=", 1)
    large = kernel.large_folio()
    if large is not None:
        flag, count = large
        asm.load(R2, R1, kernel.field("folio", "flags"))
        asm.alu(R2, "&", flag)
        asm.jump_if(R2, "==", 0, to="small")
        asm.load(R8, R1, count, size=4)
        asm.label("small")
    asm.store(FP, NEW_FIRST, R4)


def finish(asm: Assembler) -> bytes:
    """End with result 0; return the assembled program."""
    asm.label("end")
    asm.alu(R0, "=", 0)
    asm.end()
    return asm.assemble()


def resolve(asm: Assembler) -> None:
    """Count on the stack the pending lookup of R7, in mapping R2 (or 0) up to page R5."""
    asm.label("resolve")
    asm.store_value(FP, _NEW_HITS, 0)
    asm.store_value(FP, _NEW_MISSES, 0)
    asm.jump_if(R2, "==", 0, to="remember")
    asm.load(R4, R7, FIRST)
    asm.store(R7, FIRST, R5)
    asm.alu(R8, "=", reg=R5)
    asm.alu(R8, "-", reg=R4)
    asm.load(R0, R7, KIND)
    asm.jump_if(R0, "==", READ, to="pages")
    asm.alu(R8, "=", 1)  # a fault is one lookup, however many pages it maps
    asm.label("pages")
    asm.store(FP, _NEW_HITS, R8)
    asm.load(R1, R7, FRESH)
    asm.jump_if(R1, "==", 0, to="remember")
    asm.load(R3, R7, RUN_MAPPING)
    asm.jump_if(R3, "!=", reg=R2, to="remember")
    # R4..R5 becomes the part of the run that was looked up.
    asm.load(R2, R7, RUN_START)
    asm.jump_if(R4, ">=", reg=R2, to="from")
    asm.alu(R4, "=", reg=R2)
    asm.label("from")
    asm.load(R2, R7, RUN_END)
    asm.jump_if(R5, "<=", reg=R2, to="to")
    asm.alu(R5, "=", reg=R2)
    asm.label("to")
    asm.jump_if(R4, ">=", reg=R5, to="remember")
    asm.store(R7, RUN_START, R5)
    asm.alu(R5, "-", reg=R4)
    asm.jump_if(R5, "<=", reg=R1, to="missed")
    asm.alu(R5, "=", reg=R1)
    asm.label("missed")
    asm.alu(R1, "-", reg=R5)
    asm.store(R7, FRESH, R1)
    asm.jump_if(R0, "==", READ, to="misses")
    asm.alu(R5, "=", 1)
    asm.label("misses")
    asm.store(FP, _NEW_MISSES, R5)
    asm.alu(R8, "-", reg=R5)
    asm.store(FP, _NEW_HITS, R8)


def remember(asm: Assembler, kind: int) -> None:
    """Make the event the pending lookup."""
    asm.label("remember")
    asm.load(R1, FP, NEW_MAPPING)
    asm.store(R7, MAPPING, R1)
    asm.load(R1, FP, NEW_FIRST)
    asm.store(R7, FIRST, R1)
    asm.load(R1, FP, NEW_END)
    asm.store(R7, END, R1)
    asm.store_value(R7, KIND, kind)


def count(asm: Assembler, maps: Maps) -> None:
    """Add the stack's hits and misses to those of the cgroup and process."""
    asm.load(R6, FP, _NEW_HITS)
    asm.load(R7, FP, _NEW_MISSES)
    asm.alu(R1, "=", reg=R6)
    asm.alu(R1, "+", reg=R7)
    asm.jump_if(R1, "==", 0, to="end")
    asm.alu(R9, ">>", 32)
    asm.store(FP, _KEY + 8, R9)
    asm.call(_CGROUP_ID)
    asm.store(FP, _KEY, R0)
    asm.load_map(R1, maps.counts)
    address(asm, R2, _KEY)
    asm.call(_LOOKUP)
    asm.jump_if(R0, "!=", 0, to="add")
    asm.store_value(FP, _ZERO, 0)
    asm.store_value(FP, _ZERO + 8, 0)
    asm.load_map(R1, maps.counts)
    address(asm, R2, _KEY)
    address(asm, R3, _ZERO)
    asm.alu(R4, "=", _NOEXIST)
    asm.call(_UPDATE)
    asm.load_map(R1, maps.counts)
    address(asm, R2, _KEY)
    asm.call(_LOOKUP)
    asm.jump_if(R0, "!=", 0, to="add")
    asm.store_value(FP, _INDEX, 0, size=4)
    asm.load_map(R1, maps.overflow)
    address(asm, R2, _INDEX)
    asm.call(_LOOKUP)
    asm.jump_if(R0, "==", 0, to="end")
    asm.label("add")
    # Each CPU has its own counts, so there is no lock. An addition is lost only if the entry is
    # taken out at this very moment.
    for column, register in ((_HITS, R6), (_MISSES, R7)):
        asm.load(R1, R0, column)
        asm.alu(R1, "+", reg=register)
        asm.store(R0, column, R1)


def event(asm: Assembler) -> None:
    """Keep the event on the stack: mapping R1, pages from R2 to R3 (exclusive)."""
    asm.store(FP, NEW_MAPPING, R1)
    asm.store(FP, NEW_FIRST, R2)
    asm.store(FP, NEW_END, R3)
