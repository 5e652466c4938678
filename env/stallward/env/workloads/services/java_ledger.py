"""Compiles the ledger, a service on a Java virtual machine, and runs it.

``prepare DIR`` compiles ``Ledger.java`` into the folder. ``serve DIR --socket PATH`` runs it on a
heap of fixed size.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Final

from stallward.env.workloads.services.command_line import prepare_or_serve
from stallward.env.workloads.services.programs import become, needed, run

_PACKAGE: Final = "default-jdk-headless"


def prepare(folder: Path) -> None:
    """Compile the service into ``folder``."""
    source = Path(str(resources.files("stallward.env.workloads.services"))) / "Ledger.java"
    run([needed("javac", _PACKAGE), "-d", str(folder), str(source)])


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
    return [needed("java", _PACKAGE), *options, "Ledger", str(socket), str(accounts), str(seed)]


def main() -> None:
    """Compile or serve, as the command line says."""
    args = prepare_or_serve(__doc__, accounts=100_000, heap_mib=400, seed=1)
    if args.action == "prepare":
        prepare(args.folder)
        return
    become(
        serve_command(
            args.folder,
            args.socket,
            accounts=args.accounts,
            heap_mib=args.heap_mib,
            seed=args.seed,
        )
    )


if __name__ == "__main__":
    main()
