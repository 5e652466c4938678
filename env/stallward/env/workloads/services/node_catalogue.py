"""Runs the catalogue, a web service in JavaScript, on Node.js.

Run: ``python -m stallward.env.workloads.services.node_catalogue --socket PATH --articles 200000``
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from stallward.env.workloads.command_line import arguments
from stallward.env.workloads.services.programs import become, needed


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
    args = arguments(__doc__, "--socket", articles=200_000, heap_mib=2048, seed=1)
    become(
        serve_command(args.socket, articles=args.articles, heap_mib=args.heap_mib, seed=args.seed)
    )


if __name__ == "__main__":
    main()
