"""A table of routes in Erlang: many small terms, which each process copies to a heap of its own.

``python -m stallward.env.workloads.services.lookup.routes --socket PATH --routes N`` becomes
Erlang's virtual machine, which runs ``routes.erl`` beside this file.
"""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path
from typing import Final

from stallward.env.workloads.command_line import run_program
from stallward.env.workloads.services.programs import needed

_FLAGS: Final = "+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none"
"""Two schedulers, which do not spin while they wait: what they burn is not work."""


def serve_command(socket: Path, *, routes: int, seed: int) -> list[str]:
    """Return the command line of the server.

    Raises:
        SystemExit: If Erlang is not installed.
    """
    script = Path(str(resources.files("stallward.env.workloads.services.lookup"))) / "routes.erl"
    return [needed("escript", "erlang-base"), str(script), str(socket), str(routes), str(seed)]


def serve(*, socket: Path, routes: int = 200_000, seed: int = 1) -> None:
    """Replace this process by the server."""
    command = serve_command(socket, routes=routes, seed=seed)
    # Escript also wants a home; the cookie that Erlang may keep there is not needed.
    environment = {"HOME": str(socket.parent), **os.environ, "ERL_FLAGS": _FLAGS}
    os.execve(command[0], command, environment)  # noqa: S606 - no shell on purpose


if __name__ == "__main__":
    run_program(__doc__, serve)
