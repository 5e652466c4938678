"""Writes a random genome in the format FASTA, for programs that make an index of it.

Run: ``python -m stallward.env.workloads.jobs.genome FILE --bases 40000000 --seed 1``
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from stallward.env.workloads.command_line import arguments

_LINE_BASES: Final = 100
_LINES_AT_ONCE: Final = 100_000


def write_genome(path: Path, *, bases: int, seed: int) -> None:
    """Write one chromosome; ``bases`` is rounded down to whole lines of 100."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    letters = np.frombuffer(b"ACGT", dtype=np.uint8)
    left = bases // _LINE_BASES
    with path.open("wb") as file:
        file.write(b">chromosome\n")
        while left > 0:
            lines = np.full(
                (min(left, _LINES_AT_ONCE), _LINE_BASES + 1), ord("\n"), dtype=np.uint8
            )
            lines[:, :-1] = letters[rng.integers(4, size=(len(lines), _LINE_BASES))]
            file.write(lines.tobytes())
            left -= len(lines)


def main() -> None:
    """Write the genome named on the command line."""
    args = arguments(__doc__, "file", bases=None, seed=1)
    write_genome(args.file, bases=args.bases, seed=args.seed)


if __name__ == "__main__":
    main()
