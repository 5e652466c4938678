"""Writes a random genome in the format FASTA, for programs that make an index of it.

Run: ``python -m stallward.env.workloads.jobs.genome FILE --bases 40000000 --seed 1``
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from stallward.env.workloads.command_line import run_program

_LINE_BASES: Final = 100
_LINES_AT_ONCE: Final = 100_000


def write_genome(file: Path, /, *, bases: int, seed: int = 1) -> None:
    """Write one chromosome; ``bases`` is rounded down to whole lines of 100."""
    file.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    letters = np.frombuffer(b"ACGT", dtype=np.uint8)
    left = bases // _LINE_BASES
    with file.open("wb") as written:
        written.write(b">chromosome\n")
        while left > 0:
            lines = np.full(
                (min(left, _LINES_AT_ONCE), _LINE_BASES + 1), ord("\n"), dtype=np.uint8
            )
            lines[:, :-1] = letters[rng.integers(4, size=(len(lines), _LINE_BASES))]
            written.write(lines.tobytes())
            left -= len(lines)


if __name__ == "__main__":
    run_program(__doc__, write_genome)
