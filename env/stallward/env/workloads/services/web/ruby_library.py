"""Runs the library, a web service in Ruby.

Run: ``python -m stallward.env.workloads.services.web.ruby_library --socket PATH --books 200000``
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from stallward.env.workloads.command_line import arguments
from stallward.env.workloads.services.programs import become, needed


def serve_command(socket: Path, *, books: int, seed: int) -> list[str]:
    """Return the command line of the server.

    Raises:
        SystemExit: If Ruby is not installed.
    """
    script = Path(str(resources.files("stallward.env.workloads.services.web"))) / "library.rb"
    return [needed("ruby", "ruby"), str(script), str(socket), str(books), str(seed)]


def main() -> None:
    """Replace this process by the server."""
    args = arguments(__doc__, "--socket", books=150_000, seed=1)
    become(serve_command(args.socket, books=args.books, seed=args.seed))


if __name__ == "__main__":
    main()
