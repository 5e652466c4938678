"""Writes C files from a seed, so large that the compiler needs hundreds of MiB for one.

Run: ``python -m stallward.env.workloads.c_source DIR --files 3 --functions 2500 --seed 1``
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from stallward.env.workloads.command_line import run_program

_OPERATORS = ("+", "-", "*", "^", "&", "|")


def _function(index: int, rng: random.Random) -> Iterator[str]:
    """Generate a function with loops, branches and calls, which takes work to optimise."""
    names = [f"v{number}" for number in range(6)]
    yield f"static unsigned f{index}(unsigned *m, unsigned n) {{"
    yield "  unsigned " + ", ".join(f"{name} = n + {rng.randrange(99)}" for name in names) + ";"
    for _ in range(6):
        a, b, c = rng.sample(names, 3)
        operator, shift = rng.choice(_OPERATORS), rng.randrange(1, 31)
        yield f"  for (unsigned i = 0; i < (n & {rng.choice((7, 15, 31))}u); i++) {{"
        yield f"    {a} {operator}= m[({b} + i) & 255u] >> {shift};"
        yield f"    if ({c} > {a}) {b} = {a} * {rng.randrange(3, 99)}u + {c};"
        yield f"    else m[{c} & 255u] = {b} ^ i;"
        yield "  }"
    if index:
        yield f"  v0 += f{rng.randrange(index)}(m, n >> 1);"
    yield "  return " + " ^ ".join(names) + ";"
    yield "}"


def write_c_file(path: Path, *, functions: int, seed: int) -> None:
    """Write one C file with the given number of functions."""
    rng = random.Random(seed)  # noqa: S311 - not for secrets
    with path.open("w", encoding="ascii") as file:
        for index in range(functions):
            file.writelines(f"{line}\n" for line in _function(index, rng))
        calls = " + ".join(f"f{index}(m, n)" for index in range(functions))
        file.write(f"unsigned entry(unsigned *m, unsigned n) {{ return {calls}; }}\n")


def write_files(folder: Path, /, *, files: int = 3, functions: int = 2500, seed: int = 1) -> None:
    """Write the files into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for index in range(files):
        write_c_file(folder / f"source-{index}.c", functions=functions, seed=seed + index)


if __name__ == "__main__":
    run_program(__doc__, write_files)
