"""The eBPF programs that count block I/O, at the tracepoints that biotop of bcc uses.

``block_io_start(request)`` comes when a request is made, in the process that makes it. For what is
written back, and for what kswapd swaps out, that is a thread of the kernel.
``block_rq_issue(request)`` comes when it goes to the disk, with all that has been merged into it
meanwhile, and ``block_io_done(request)`` when it has ended; both come in any process.
"""

from __future__ import annotations

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
    R6,
    R7,
    R8,
    R9,
    Assembler,
    Btf,
)

START: Final = "block_io_start"
ISSUE: Final = "block_rq_issue"
DONE: Final = "block_io_done"
KEY_BYTES: Final = 40
"""A key holds pid (8 bytes), major and minor (4 each), operation (8) and name (16)."""
VALUE_BYTES: Final = 24
"""A value holds requests, bytes and nanoseconds."""
STARTED_BYTES: Final = 56
"""A started request holds its key, its bytes, and when it was made."""
REQUEST_BYTES: Final = 8

_LOOKUP, _UPDATE, _DELETE, _TIME_NS, _PID_TGID, _COMM = 1, 2, 3, 5, 14, 16
_NAME_BYTES: Final = 16
_OPERATIONS: Final = 0xFF
"""REQ_OP_MASK (include/linux/blk_types.h)."""

# On the stack: the request, its record, and an empty value.
_REQUEST: Final = -8
_RECORD: Final = -8 - STARTED_BYTES
_PID, _MAJOR, _MINOR, _OPERATION, _NAME, _BYTES, _TIME = 0, 8, 12, 16, 24, 40, 48
_ZERO: Final = _RECORD - VALUE_BYTES

NAMES: Final = (
    *("request", "request_queue", "gendisk"),
    *(f"btf_trace_{name}" for name in (START, ISSUE, DONE)),
)
"""All names to look up in the kernel's types."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What the programs need to know of the running kernel."""

    start_type: int
    """The BTF type numbers of the tracepoints."""
    issue_type: int
    done_type: int
    length: int
    """Offsets of fields, in bytes."""
    flags: int
    queue: int
    disk: int
    major: int
    minor: int


def layout_of(btf: Btf) -> Layout:
    """Look up what the programs need.

    Raises:
        NodeError: If the kernel has no such tracepoint or field.
    """
    hooks = []
    for name in (START, ISSUE, DONE):
        hook = btf.tracepoint(f"btf_trace_{name}")
        if hook is None or len(hook.arguments) != 1:
            raise NodeError(f"this kernel has no tracepoint {name} (Linux 6.5 or later has)")
        hooks.append(hook.type_id)

    def offset(structure: str, field: str) -> int:
        found = btf.field_offset(structure, field)
        if found is None:
            raise NodeError(f"this kernel has no {structure}.{field}")
        return found

    return Layout(
        start_type=hooks[0],
        issue_type=hooks[1],
        done_type=hooks[2],
        length=offset("request", "__data_len"),
        flags=offset("request", "cmd_flags"),
        queue=offset("request", "q"),
        disk=offset("request_queue", "disk"),
        major=offset("gendisk", "major"),
        minor=offset("gendisk", "first_minor"),
    )


def start_program(layout: Layout, started: int) -> bytes:
    """Make the program that remembers a request.

    Args:
        layout: The kernel's.
        started: Descriptor of the map of started requests.
    """
    asm = Assembler()
    asm.load(R6, R1, 0)
    asm.store(FP, _REQUEST, R6)
    asm.call(_PID_TGID)
    asm.alu(R0, ">>", 32)
    asm.store(FP, _RECORD + _PID, R0)
    asm.load(R7, R6, layout.queue)
    asm.load(R7, R7, layout.disk)
    for field, place in ((layout.major, _MAJOR), (layout.minor, _MINOR)):
        asm.load(R8, R7, field, size=4)
        asm.store(FP, _RECORD + place, R8, size=4)
    asm.load(R8, R6, layout.flags, size=4)
    asm.alu(R8, "&", _OPERATIONS)
    asm.store(FP, _RECORD + _OPERATION, R8)
    asm.load(R8, R6, layout.length, size=4)
    asm.store(FP, _RECORD + _BYTES, R8)
    _address(asm, R1, _RECORD + _NAME)
    asm.alu(R2, "=", _NAME_BYTES)
    asm.call(_COMM)
    asm.call(_TIME_NS)
    asm.store(FP, _RECORD + _TIME, R0)
    asm.load_map(R1, started)
    _address(asm, R2, _REQUEST)
    _address(asm, R3, _RECORD)
    asm.alu(R4, "=", 0)
    asm.call(_UPDATE)
    asm.alu(R0, "=", 0)
    asm.end()
    return asm.assemble()


def issue_program(layout: Layout, started: int) -> bytes:
    """Make the program that notes how long a request has become.

    Args:
        layout: The kernel's.
        started: Descriptor of the map of started requests.
    """
    asm = Assembler()
    asm.load(R6, R1, 0)
    asm.store(FP, _REQUEST, R6)
    asm.load_map(R1, started)
    _address(asm, R2, _REQUEST)
    asm.call(_LOOKUP)
    asm.jump_if(R0, "==", 0, to="end")
    asm.load(R8, R6, layout.length, size=4)
    asm.store(R0, _BYTES, R8)
    asm.label("end")
    asm.alu(R0, "=", 0)
    asm.end()
    return asm.assemble()


def done_program(started: int, counts: int) -> bytes:
    """Make the program that counts an ended request at the process that made it.

    Args:
        started: Descriptor of the map of started requests.
        counts: Descriptor of the map of counts.
    """
    asm = Assembler()
    asm.load(R6, R1, 0)
    asm.store(FP, _REQUEST, R6)
    asm.load_map(R1, started)
    _address(asm, R2, _REQUEST)
    asm.call(_LOOKUP)
    asm.jump_if(R0, "==", 0, to="end")  # it was made before the programs were attached
    for place in range(0, STARTED_BYTES, 8):  # the record goes before its last use
        asm.load(R1, R0, place)
        asm.store(FP, _RECORD + place, R1)
    asm.call(_TIME_NS)
    asm.load(R9, FP, _RECORD + _TIME)
    asm.alu(R0, "-", reg=R9)
    asm.alu(R9, "=", reg=R0)
    asm.load(R8, FP, _RECORD + _BYTES)
    asm.load_map(R1, started)
    _address(asm, R2, _REQUEST)
    asm.call(_DELETE)
    _find(asm, counts)
    asm.jump_if(R0, "!=", 0, to="add")
    for place in range(0, VALUE_BYTES, 8):
        asm.store_value(FP, _ZERO + place, 0)
    asm.load_map(R1, counts)
    _address(asm, R2, _RECORD)
    _address(asm, R3, _ZERO)
    asm.alu(R4, "=", 1)  # BPF_NOEXIST
    asm.call(_UPDATE)
    _find(asm, counts)
    asm.jump_if(R0, "==", 0, to="end")  # there is no room between two reads
    asm.label("add")
    asm.load(R1, R0, 0)
    asm.alu(R1, "+", 1)
    asm.store(R0, 0, R1)
    for place, register in ((8, R8), (16, R9)):
        asm.load(R1, R0, place)
        asm.alu(R1, "+", reg=register)
        asm.store(R0, place, R1)
    asm.label("end")
    asm.alu(R0, "=", 0)
    asm.end()
    return asm.assemble()


def _find(asm: Assembler, counts: int) -> None:
    asm.load_map(R1, counts)
    _address(asm, R2, _RECORD)
    asm.call(_LOOKUP)


def _address(asm: Assembler, register: int, offset: int) -> None:
    asm.alu(register, "=", reg=FP)
    asm.alu(register, "+", offset)
