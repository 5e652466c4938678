"""Writes a random circuit in Verilog, for programs that make gates of it.

Run: ``python -m stallward.env.workloads.jobs.circuit FILE --stages 60 --seed 1``
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from stallward.env.workloads.command_line import run_program

_BITS: Final = 32
_OPERATORS: Final = ("+", "-", "^", "&", "|", "*")
_REGISTERS: Final = 8


def circuit(*, stages: int, seed: int) -> Iterator[str]:
    """Generate the lines of one module: stages of registers, each made of two of the stage before.

    The last stage is put out, so that no part of the circuit can be left away.
    """
    rng = random.Random(seed)  # noqa: S311 - not for secrets
    width = f"[{_BITS - 1}:0]"
    places = range(_REGISTERS)
    yield f"module top(input clk, input {width} a, output {width} y);\n"
    yield f"  wire {width} " + ", ".join(f"s0_{place}" for place in places) + ";\n"
    for place in places:
        yield f"  assign s0_{place} = a + {rng.getrandbits(_BITS)};\n"
    for stage in range(1, stages + 1):
        yield f"  reg {width} " + ", ".join(f"s{stage}_{place}" for place in places) + ";\n"
        for place in places:
            other = (place + rng.choice((1, 3))) % _REGISTERS
            sources = f"s{stage - 1}_{place} {rng.choice(_OPERATORS)} s{stage - 1}_{other}"
            yield f"  always @(posedge clk) s{stage}_{place} <= {sources};\n"
    yield "  assign y = " + " ^ ".join(f"s{stages}_{place}" for place in places) + ";\nendmodule\n"


def write_circuit(file: Path, /, *, stages: int, seed: int = 1) -> None:
    """Write a circuit into a file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", encoding="ascii") as written:
        written.writelines(circuit(stages=stages, seed=seed))


if __name__ == "__main__":
    run_program(__doc__, write_circuit)
