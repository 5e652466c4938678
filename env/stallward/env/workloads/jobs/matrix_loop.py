"""Works for ever on square matrices in memory; a unit is one block that was multiplied.

A unit replaces a random block of rows by its product with a random matrix. So all matrices stay in
use, and a unit is short.

Run: ``python -m stallward.env.workloads.jobs.matrix_loop --mib 300 --seed 1 --report PATH``
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from stallward.env.workloads.command_line import run_program
from stallward.env.workloads.report import work

_SIDE: Final = 1024
_BLOCK_ROWS: Final = 128
_MATRIX_BYTES: Final = 4 * _SIDE * _SIDE


class Matrices:
    """The matrices.

    Args:
        mib: Their size together.
        seed: The seed of their values and of the choices.
    """

    def __init__(self, *, mib: int, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        count = max(2, (mib << 20) // _MATRIX_BYTES)
        self.values = self._rng.standard_normal((count, _SIDE, _SIDE), dtype=np.float32)

    def step(self) -> None:
        """Multiply one block of rows."""
        target, factor = self._rng.integers(len(self.values), size=2)
        first = int(self._rng.integers(_SIDE // _BLOCK_ROWS)) * _BLOCK_ROWS
        rows = self.values[target, first : first + _BLOCK_ROWS]
        product = rows @ self.values[factor]
        rows[:] = product / np.float32(max(1.0, float(np.abs(product).max())))


def main(*, report: Path, mib: int = 300, seed: int = 1) -> None:
    """Multiply until killed."""
    work(report, lambda: Matrices(mib=mib, seed=seed).step)


if __name__ == "__main__":
    run_program(__doc__, main)
