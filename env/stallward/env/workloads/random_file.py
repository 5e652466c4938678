"""Writes a file of random bytes from a seed.

Run: ``python -m stallward.env.workloads.random_file PATH --mib 700 --seed 1``
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from stallward.env.workloads.command_line import arguments


def write_random_file(path: Path, *, size_mib: int, seed: int) -> None:
    """Write ``size_mib`` MiB of random bytes, which do not compress."""
    rng = np.random.default_rng(seed)
    with path.open("wb") as file:
        for _ in range(size_mib):
            file.write(rng.bytes(1 << 20))


def main() -> None:
    """Write the file named on the command line."""
    args = arguments(__doc__, "path", mib=None, seed=1)
    write_random_file(args.path, size_mib=args.mib, seed=args.seed)


if __name__ == "__main__":
    main()
