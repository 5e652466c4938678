"""Writes a file of random bytes from a seed.

Run: ``python -m stallward.env.workloads.random_file PATH --mib 700 --seed 1``
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from stallward.env.workloads.command_line import run_program


def write_random_file(path: Path, /, *, mib: int, seed: int = 1) -> None:
    """Write ``mib`` MiB of random bytes, which do not compress."""
    rng = np.random.default_rng(seed)
    with path.open("wb") as file:
        for _ in range(mib):
            file.write(rng.bytes(1 << 20))


if __name__ == "__main__":
    run_program(__doc__, write_random_file)
