"""Runs the catalogue, a web service in JavaScript, on Node.js.

Run: ``python -m stallward.env.workloads.services.node_catalogue --socket PATH --articles 200000``
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from stallward.env.workloads.command_line import run_program
from stallward.env.workloads.services.programs import needed


def serve_command(
    *, socket: Path, articles: int = 200_000, heap_mib: int = 2048, seed: int = 1
) -> list[str]:
    """Return the command line of the server.

    Raises:
        SystemExit: If Node.js is not installed.
    """
    program = needed("node", "nodejs")
    script = Path(str(resources.files("stallward.env.workloads.services"))) / "catalogue.js"
    options = [f"--max-old-space-size={heap_mib}"]
    return [program, *options, str(script), str(socket), str(articles), str(seed)]


if __name__ == "__main__":
    run_program(__doc__, serve_command)
