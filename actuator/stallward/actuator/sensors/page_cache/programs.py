"""The eBPF programs that count page-cache lookups at the kernel's own tracepoints.

===================================  =======================================================
``mm_filemap_get_pages``             read(2), sendfile(2) and the like look pages up
``mm_filemap_fault``                 a page fault asks for a page of a mapped file
``mm_filemap_map_pages``             a page fault is served from pages in the cache
``mm_filemap_add_to_page_cache``     a page is brought in
``writeback_dirty_folio``            a page is written to
===================================  =======================================================

A lookup is a miss if the same thread has just had the page brought in, for this lookup or by
readahead; any other is a hit. For that the programs keep of each thread its last *run*: the range
of pages that it brought in last, and how many of them are *fresh*, that is, have not been looked
up or written to yet. The outcome of a lookup is known only afterwards (one read comes in parts, a
fault is tried again), so each thread also has a *pending* lookup, which is counted at its next
event.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

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
    Assembler,
)
from stallward.actuator.sensors.page_cache import steps as step
from stallward.actuator.sensors.page_cache.steps import Kernel, Maps

_SAME_RUN_PAGES: Final = 256
"""A page within this distance behind a run belongs to it: pages between were cached already."""
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_PAGE_SHIFT: Final = _PAGE_BYTES.bit_length() - 1


def _grow_run(asm: Assembler) -> None:
    """Add to the run R8 pages from R4 to R5 of mapping R6, or jump to "new"."""
    asm.load(R1, R7, step.FRESH)
    asm.jump_if(R1, "==", 0, to="new")
    asm.load(R2, R7, step.RUN_MAPPING)
    asm.jump_if(R2, "!=", reg=R6, to="new")
    asm.load(R2, R7, step.RUN_START)
    asm.jump_if(R4, "<", reg=R2, to="new")
    asm.load(R3, R7, step.RUN_END)
    asm.alu(R2, "=", reg=R3)
    asm.alu(R2, "+", _SAME_RUN_PAGES)
    asm.jump_if(R4, ">", reg=R2, to="new")
    asm.alu(R1, "+", reg=R8)
    asm.store(R7, step.FRESH, R1)
    asm.jump_if(R5, "<=", reg=R3, to="end")
    asm.store(R7, step.RUN_END, R5)
    asm.jump("end")


def _settle(asm: Assembler) -> None:
    """Count the pending lookup, which may be of the run's pages, before the run is forgotten."""
    asm.store(FP, step.NEW_MAPPING, R6)
    asm.store(FP, step.NEW_END, R5)
    asm.load(R2, R7, step.MAPPING)
    asm.load(R5, R7, step.END)
    asm.jump_if(R2, "!=", reg=R6, to="whole")
    asm.load(R0, R7, step.KIND)
    asm.jump_if(R0, "==", step.FAULT, to="none")  # the new page is brought in for this fault
    asm.jump_if(R0, "!=", step.READ, to="whole")
    asm.load(R3, R7, step.FIRST)
    asm.jump_if(R4, "<", reg=R3, to="whole")
    asm.jump_if(R4, ">=", reg=R5, to="whole")
    asm.alu(R5, "=", reg=R4)  # the same read goes on: count the pages before the new one
    asm.jump("resolve")
    asm.label("none")
    asm.alu(R2, "=", 0)
    asm.jump("resolve")
    asm.label("whole")
    asm.store_value(R7, step.MAPPING, 0)
    step.resolve(asm)


def add_program(kernel: Kernel, maps: Maps) -> bytes:
    """Make the program of ``mm_filemap_add_to_page_cache(folio)``: add to the run or start one."""
    asm = Assembler()
    asm.load(R1, R1, 0)
    step.folio(asm, kernel)
    step.find_thread(asm, maps)
    asm.load(R4, FP, step.NEW_FIRST)
    asm.alu(R5, "=", reg=R4)
    asm.alu(R5, "+", reg=R8)
    _grow_run(asm)
    asm.label("new")
    _settle(asm)
    asm.label("remember")
    asm.load(R1, FP, step.NEW_MAPPING)
    asm.store(R7, step.RUN_MAPPING, R1)
    asm.load(R1, FP, step.NEW_FIRST)
    asm.store(R7, step.RUN_START, R1)
    asm.load(R2, FP, step.NEW_END)
    asm.store(R7, step.RUN_END, R2)
    asm.alu(R2, "-", reg=R1)
    asm.store(R7, step.FRESH, R2)
    step.count(asm, maps)
    return step.finish(asm)


def dirty_program(kernel: Kernel, maps: Maps) -> bytes:
    """Make the program of ``writeback_dirty_folio(folio, mapping)``: a page is written to."""
    asm = Assembler()
    asm.load(R1, R1, 0)
    step.folio(asm, kernel)
    step.find_thread(asm, maps)
    asm.load(R1, R7, step.FRESH)
    asm.jump_if(R1, "==", 0, to="end")
    asm.load(R2, R7, step.RUN_MAPPING)
    asm.jump_if(R2, "!=", reg=R6, to="end")
    asm.load(R4, FP, step.NEW_FIRST)
    asm.load(R2, R7, step.RUN_START)
    asm.jump_if(R4, "<", reg=R2, to="end")
    asm.load(R2, R7, step.RUN_END)
    asm.jump_if(R4, ">=", reg=R2, to="end")
    asm.jump_if(R8, "<=", reg=R1, to="some")
    asm.alu(R8, "=", reg=R1)
    asm.label("some")
    asm.alu(R1, "-", reg=R8)
    asm.store(R7, step.FRESH, R1)
    return step.finish(asm)


def read_program(kernel: Kernel, maps: Maps) -> bytes:
    """Make the program of ``mm_filemap_get_pages(mapping, index, last_index)``: part of a read.

    All parts of a read end where the read ends, so each part covers the pages up to the next one.
    """
    asm = Assembler()
    asm.alu(R4, "=", reg=R1)
    asm.load(R1, R4, 0)
    asm.load(R2, R4, 8)
    asm.load(R3, R4, 16)
    asm.alu(R3, "+", 0 if kernel.last_index_is_behind else 1)
    asm.load(R5, R1, kernel.field("address_space", "host"))
    asm.load(R5, R5, kernel.field("inode", "i_size"))
    asm.alu(R5, "+", _PAGE_BYTES - 1)
    asm.alu(R5, ">>", _PAGE_SHIFT)
    asm.jump_if(R3, "<=", reg=R5, to="inside")
    asm.alu(R3, "=", reg=R5)  # a buffer longer than the file
    asm.label("inside")
    asm.jump_if(R2, ">=", reg=R3, to="end")
    step.event(asm)
    step.find_thread(asm, maps)
    asm.load(R2, R7, step.MAPPING)
    asm.load(R5, R7, step.END)
    asm.load(R1, R7, step.KIND)
    asm.jump_if(R1, "!=", step.READ, to="resolve")
    asm.load(R1, FP, step.NEW_MAPPING)
    asm.jump_if(R1, "!=", reg=R2, to="resolve")
    asm.load(R1, FP, step.NEW_END)
    asm.jump_if(R1, "!=", reg=R5, to="resolve")
    asm.load(R1, R7, step.FIRST)
    asm.load(R3, FP, step.NEW_FIRST)
    asm.jump_if(R3, "<=", reg=R1, to="resolve")
    asm.alu(R5, "=", reg=R3)
    step.resolve(asm)
    step.remember(asm, step.READ)
    step.count(asm, maps)
    return step.finish(asm)


def fault_program(kernel: Kernel, maps: Maps) -> bytes:
    """Make the program of ``mm_filemap_fault(mapping, index)``: a fault, or another try of it.

    It also comes when ``mm_filemap_map_pages`` mapped other pages but not the one that was needed.
    """
    asm = Assembler()
    asm.alu(R4, "=", reg=R1)
    asm.load(R1, R4, 0)
    asm.load(R2, R4, 8)
    asm.alu(R3, "=", reg=R2)
    asm.alu(R3, "+", 1)
    step.event(asm)
    step.find_thread(asm, maps)
    asm.load(R2, R7, step.MAPPING)
    asm.load(R5, R7, step.END)
    asm.load(R1, R7, step.KIND)
    asm.jump_if(R1, "==", step.READ, to="resolve")
    asm.load(R1, FP, step.NEW_MAPPING)
    asm.jump_if(R1, "!=", reg=R2, to="resolve")
    asm.load(R1, R7, step.FIRST)
    asm.load(R3, FP, step.NEW_FIRST)
    asm.jump_if(R3, "<", reg=R1, to="resolve")
    asm.jump_if(R3, ">=", reg=R5, to="resolve")
    asm.alu(R2, "=", 0)  # the same fault: its lookup is not decided yet
    step.resolve(asm)
    step.remember(asm, step.FAULT)
    step.count(asm, maps)
    return step.finish(asm)


def map_program(kernel: Kernel, maps: Maps) -> bytes:
    """Make the program of ``mm_filemap_map_pages(mapping, start_pgoff, end_pgoff)``.

    The end is inclusive.
    """
    asm = Assembler()
    asm.alu(R4, "=", reg=R1)
    asm.load(R1, R4, 0)
    asm.load(R2, R4, 8)
    asm.load(R3, R4, 16)
    asm.alu(R3, "+", 1)
    step.event(asm)
    step.find_thread(asm, maps)
    asm.load(R2, R7, step.MAPPING)
    asm.load(R5, R7, step.END)
    asm.load(R1, R7, step.KIND)
    asm.jump_if(R1, "!=", step.FAULT, to="resolve")
    asm.load(R1, FP, step.NEW_MAPPING)
    asm.jump_if(R1, "!=", reg=R2, to="resolve")
    asm.load(R1, R7, step.FIRST)
    asm.load(R3, FP, step.NEW_FIRST)
    asm.jump_if(R1, "<", reg=R3, to="resolve")
    asm.load(R3, FP, step.NEW_END)
    asm.jump_if(R1, ">=", reg=R3, to="resolve")
    asm.alu(R2, "=", 0)  # the same fault, tried again
    step.resolve(asm)
    step.remember(asm, step.MAP)
    step.count(asm, maps)
    return step.finish(asm)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One program and its tracepoint."""

    name: str
    tracepoint: str
    arguments: int
    make: Callable[[Kernel, Maps], bytes]


PROGRAMS: Final = (
    Program(
        name="sw_add",
        tracepoint="mm_filemap_add_to_page_cache",
        arguments=1,
        make=add_program,
    ),
    Program(name="sw_dirty", tracepoint="writeback_dirty_folio", arguments=2, make=dirty_program),
    Program(name="sw_read", tracepoint="mm_filemap_get_pages", arguments=3, make=read_program),
    Program(name="sw_fault", tracepoint="mm_filemap_fault", arguments=2, make=fault_program),
    Program(name="sw_map", tracepoint="mm_filemap_map_pages", arguments=3, make=map_program),
)
NAMES: Final = (
    *("address_space", "folio", "inode", "pageflags"),
    *(f"btf_trace_{program.tracepoint}" for program in PROGRAMS),
)
"""All names to look up in the kernel's types."""
