"""Writes a text file from a seed, for programs that sort or compress.

Each line is two random halves from a pool. So parts of lines repeat, but hardly a whole line does.

Run: ``python -m stallward.env.workloads.text_file PATH --mib 256 --seed 1``
"""

from __future__ import annotations

import random
from pathlib import Path

from stallward.env.workloads.command_line import run_program

_POOL = 100_000
_HALF_BYTES = 48
_LINES_AT_ONCE = 10_000


def write_text_file(path: Path, /, *, mib: int, seed: int = 1) -> None:
    """Write at least ``mib`` MiB of lines of 96 hexadecimal digits."""
    rng = random.Random(seed)  # noqa: S311 - not for secrets
    pool = [rng.randbytes(_HALF_BYTES // 2).hex() for _ in range(_POOL)]
    left = mib << 20
    with path.open("w", encoding="ascii") as file:
        while left > 0:
            first = rng.choices(pool, k=_LINES_AT_ONCE)
            second = rng.choices(pool, k=_LINES_AT_ONCE)
            left -= file.write("".join(f"{a}{b}\n" for a, b in zip(first, second, strict=True)))


if __name__ == "__main__":
    run_program(__doc__, write_text_file)
