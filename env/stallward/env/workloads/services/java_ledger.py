"""Compiles the ledger, a service on a Java virtual machine, and runs it.

``prepare DIR`` compiles ``Ledger.java`` into the folder. ``serve DIR --socket PATH`` runs it on a
heap of fixed size.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Final

from stallward.env.workloads.command_line import run_program
from stallward.env.workloads.services.programs import needed, run

_PACKAGE: Final = "default-jdk-headless"


def prepare(folder: Path, /) -> None:
    """Compile the service into ``folder``."""
    source = Path(str(resources.files("stallward.env.workloads.services"))) / "Ledger.java"
    run([needed("javac", _PACKAGE), "-d", str(folder), str(source)])


def serve_command(
    folder: Path,
    /,
    socket: Path,
    *,
    accounts: int = 100_000,
    heap_mib: int = 400,
    seed: int = 1,
) -> list[str]:
    """Return the command line of the server.

    The heap does not grow or shrink, and the serial collector uses one thread: what memory does is
    the same in every block.
    """
    heap = [f"-Xms{heap_mib}m", f"-Xmx{heap_mib}m", "-XX:+UseSerialGC", "-Xmn64m"]
    quiet = ["-XX:-UsePerfData", "-XX:CICompilerCount=2", "-Xshare:auto"]
    options = [*heap, *quiet, "-cp", str(folder)]
    return [needed("java", _PACKAGE), *options, "Ledger", str(socket), str(accounts), str(seed)]


if __name__ == "__main__":
    run_program(__doc__, prepare=prepare, serve=serve_command)
