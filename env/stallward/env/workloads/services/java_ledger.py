"""Compiles the ledger, a service on a Java virtual machine, and runs it.

``prepare DIR`` compiles ``Ledger.java`` into the folder. ``serve DIR --socket PATH`` runs it on a
heap of fixed size.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from importlib import resources
from pathlib import Path


def needed(program: str) -> str:
    """Return the path of a program of the JDK.

    Raises:
        SystemExit: If it is not installed.
    """
    path = shutil.which(program)
    if path is None:
        sys.exit(f"{program} is not installed; try `apt-get install default-jdk-headless`")
    return path


def prepare(folder: Path) -> None:
    """Compile the service into ``folder``."""
    source = Path(str(resources.files("stallward.env.workloads.services"))) / "Ledger.java"
    argv = [needed("javac"), "-d", str(folder), str(source)]
    process = subprocess.run(argv, capture_output=True, text=True, check=False)
    if process.returncode != 0:
        sys.exit(f"javac failed: {process.stderr.strip()[-500:]}")


def serve_command(
    folder: Path, socket: Path, *, accounts: int, heap_mib: int, seed: int
) -> list[str]:
    """Return the command line of the server.

    The heap does not grow or shrink, and the serial collector uses one thread: what memory does is
    the same in every block.
    """
    heap = [f"-Xms{heap_mib}m", f"-Xmx{heap_mib}m", "-XX:+UseSerialGC", "-Xmn64m"]
    quiet = ["-XX:-UsePerfData", "-XX:CICompilerCount=2", "-Xshare:auto"]
    options = [*heap, *quiet, "-cp", str(folder)]
    return [needed("java"), *options, "Ledger", str(socket), str(accounts), str(seed)]


def main() -> None:
    """Compile or serve, as the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("action", choices=("prepare", "serve"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--socket", type=Path)
    parser.add_argument("--accounts", type=int, default=100_000)
    parser.add_argument("--heap-mib", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if args.action == "prepare":
        prepare(args.folder)
        return
    if args.socket is None:
        parser.error("serve needs --socket")
    command = serve_command(
        args.folder, args.socket, accounts=args.accounts, heap_mib=args.heap_mib, seed=args.seed
    )
    os.execv(command[0], command)  # noqa: S606 - no shell on purpose


if __name__ == "__main__":
    main()
