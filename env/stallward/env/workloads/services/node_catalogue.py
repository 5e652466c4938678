"""Runs the catalogue, a web service in JavaScript, on Node.js.

Run: ``python -m stallward.env.workloads.services.node_catalogue --socket PATH --articles 200000``
"""

from __future__ import annotations

import argparse
import os
from importlib import resources
from pathlib import Path

from stallward.env.workloads.services.programs import needed


def serve_command(socket: Path, *, articles: int, heap_mib: int, seed: int) -> list[str]:
    """Return the command line of the server.

    Raises:
        SystemExit: If Node.js is not installed.
    """
    program = needed("node", "nodejs")
    script = Path(str(resources.files("stallward.env.workloads.services"))) / "catalogue.js"
    options = [f"--max-old-space-size={heap_mib}"]
    return [program, *options, str(script), str(socket), str(articles), str(seed)]


def main() -> None:
    """Replace this process by the server."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--articles", type=int, default=200_000)
    parser.add_argument("--heap-mib", type=int, default=2048)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    command = serve_command(
        args.socket, articles=args.articles, heap_mib=args.heap_mib, seed=args.seed
    )
    os.execv(command[0], command)  # noqa: S606 - no shell on purpose


if __name__ == "__main__":
    main()
