"""Runs the library, a web service in Ruby.

Run: ``python -m stallward.env.workloads.services.web.ruby_library --socket PATH --books 200000``
"""

from __future__ import annotations

import argparse
import os
from importlib import resources
from pathlib import Path

from stallward.env.workloads.services.programs import needed


def serve_command(socket: Path, *, books: int, seed: int) -> list[str]:
    """Return the command line of the server.

    Raises:
        SystemExit: If Ruby is not installed.
    """
    script = Path(str(resources.files("stallward.env.workloads.services.web"))) / "library.rb"
    return [needed("ruby", "ruby"), str(script), str(socket), str(books), str(seed)]


def main() -> None:
    """Replace this process by the server."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--books", type=int, default=150_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    command = serve_command(args.socket, books=args.books, seed=args.seed)
    os.execv(command[0], command)  # noqa: S606 - no shell on purpose


if __name__ == "__main__":
    main()
