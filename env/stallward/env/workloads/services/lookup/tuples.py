"""An in-memory database: Tarantool with the orders of a shop, which a function in Lua adds up.

``python -m stallward.env.workloads.services.lookup.tuples --socket PATH --rows N`` becomes
Tarantool, which runs ``tuples.lua`` beside this file, on that Unix socket. It answers in its own
binary protocol, in one thread.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from stallward.env.workloads.command_line import run_program
from stallward.env.workloads.services.programs import needed


def serve_command(
    *, socket: Path, rows: int = 200_000, memory_mib: int = 1024, seed: int = 1
) -> list[str]:
    """Return the command line of the server.

    Raises:
        SystemExit: If Tarantool is not installed.
    """
    script = Path(str(resources.files("stallward.env.workloads.services.lookup"))) / "tuples.lua"
    program = needed("tarantool", "tarantool")
    return [program, str(script), str(socket), str(rows), str(memory_mib), str(seed)]


if __name__ == "__main__":
    run_program(__doc__, serve_command)
