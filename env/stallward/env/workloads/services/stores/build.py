"""Compiles the server of one of the stores in this folder.

Run: ``python -m stallward.env.workloads.services.stores.build ordered PROGRAM``
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
from pathlib import Path
from typing import Final

LIBRARIES: Final = {"ordered": "lmdb", "transactional": "rocksdb"}
"""Name of a store -> the library that is its engine."""
_FLAGS: Final = ("-O2", "-std=gnu11", "-pthread")


def build_store(store: str, program: Path) -> None:
    """Compile a store's server.

    Args:
        store: One of :data:`LIBRARIES`.
        program: The executable to make.

    Raises:
        SystemExit: If there is no C compiler, or it refuses: the headers of the library are
            missing, as a rule.
    """
    sources = Path(__file__).parent
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise SystemExit("No C compiler was found on PATH; install one, e.g. gcc and libc6-dev.")
    process = subprocess.run(
        [
            compiler,
            *_FLAGS,
            "-o",
            str(program),
            str(sources / "server.c"),
            str(sources / f"{store}.c"),
            f"-l{LIBRARIES[store]}",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode != 0:
        raise SystemExit(f"{compiler} could not compile {store}.c: {process.stderr[:400]}")


def main() -> None:
    """Compile the store named on the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("store", choices=tuple(LIBRARIES))
    parser.add_argument("program", type=Path)
    args = parser.parse_args()
    build_store(args.store, args.program)


if __name__ == "__main__":
    main()
