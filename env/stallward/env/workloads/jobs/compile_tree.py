"""Writes C files, a Makefile and copies of the compiler's programs: a tree that ``make`` compiles.

Run: ``python -m stallward.env.workloads.jobs.compile_tree DIR --files 12 --functions 30``

The copies make the compiler's own pages count: those of an installed compiler are in the page
cache already, charged to somebody else, and a sandbox would use them for free.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

from stallward.env.errors import WorkloadError
from stallward.env.workloads.c_source import write_c_file
from stallward.env.workloads.command_line import run_program

_PROGRAMS: Final = ("cc1", "as")
"""What ``gcc -c`` runs: the compiler, and the assembler."""

# Objects go where make was started.
MAKEFILE: Final = """\
TREE := $(dir $(lastword $(MAKEFILE_LIST)))
OBJECTS := $(patsubst $(TREE)%.c,%.o,$(wildcard $(TREE)*.c))
all: $(OBJECTS)
%.o: $(TREE)%.c
\tgcc -B$(TREE)bin/ -O2 -c $< -o $@
"""


def write_tree(folder: Path, /, *, files: int = 12, functions: int = 30, seed: int = 1) -> None:
    """Write a tree.

    Args:
        folder: Where it goes.
        files: The number of C files.
        functions: The number of functions in each.
        seed: Seeds their content.

    Raises:
        WorkloadError: If there is no compiler.
    """
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    for name in _PROGRAMS:
        shutil.copy(_program(name), folder / "bin" / name)
    for index in range(files):
        path = folder / f"source-{index:03}.c"
        write_c_file(path, functions=functions, seed=seed + index)
    (folder / "Makefile").write_text(MAKEFILE, encoding="ascii")


def _program(name: str) -> str:
    """The path of one of the compiler's programs, as gcc finds it."""
    gcc = shutil.which("gcc")
    found = None
    if gcc is not None:
        asked = [gcc, f"-print-prog-name={name}"]
        answer = subprocess.run(asked, capture_output=True, text=True, check=True)
        found = shutil.which(answer.stdout.strip())
    if found is None:
        raise WorkloadError(
            f"There is no program {name!r} of gcc.",
            next_step="Install it, e.g. `apt-get install gcc make`.",
        )
    return found


if __name__ == "__main__":
    run_program(__doc__, write_tree)
