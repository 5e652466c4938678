"""The encoding of eBPF instructions (instruction-set.rst), by bytes worked out by hand."""

from __future__ import annotations

import pytest

from stallward.actuator.kernel.bpf import FP, R0, R1, R2, R6, R9, Assembler
from stallward.agent.errors import StallwardError


def test_arithmetic_memory_and_calls() -> None:
    asm = Assembler()
    asm.alu(R0, "=", -1)
    asm.alu(R2, "=", reg=FP)
    asm.alu(R9, ">>", 32)
    asm.alu(R1, "-", reg=R2)
    asm.load(R6, R1, 24)
    asm.load(R6, R1, 4, size=4)
    asm.store(FP, -8, R9)
    asm.store_value(FP, -16, 5, size=4)
    asm.call(14)
    asm.end()
    lines = (
        "b700 0000 ffffffff",
        "bfa2 0000 00000000",
        "7709 0000 20000000",
        "1f21 0000 00000000",
        "7916 1800 00000000",
        "6116 0400 00000000",
        "7b9a f8ff 00000000",
        "620a f0ff 05000000",
        "8500 0000 0e000000",
        "9500 0000 00000000",
    )
    assert asm.assemble() == bytes.fromhex(" ".join(lines))


def test_jumps_go_to_their_labels_both_ways() -> None:
    asm = Assembler()
    asm.label("top")
    asm.jump_if(R1, "s<=", 0, to="end")
    asm.load_map(R1, 7)
    asm.jump_if(R1, ">", reg=R2, to="top")
    asm.jump("end")
    asm.label("end")
    asm.end()
    lines = (
        "d501 0400 00000000",
        "1811 0000 07000000",
        "0000 0000 00000000",
        "2d21 fcff 00000000",
        "0500 0000 00000000",
        "9500 0000 00000000",
    )
    assert asm.assemble() == bytes.fromhex(" ".join(lines))


def test_a_label_must_be_there_once() -> None:
    asm = Assembler()
    asm.jump("nowhere")
    with pytest.raises(StallwardError, match="nowhere"):
        asm.assemble()
    asm.label("twice")
    with pytest.raises(StallwardError, match="twice"):
        asm.label("twice")
