"""Runs the library, a web service in Ruby.

Run: ``python -m stallward.env.workloads.services.web.ruby_library --socket PATH --books 200000``
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from stallward.env.workloads.command_line import run_program
from stallward.env.workloads.services.programs import needed


def serve_command(*, socket: Path, books: int = 150_000, seed: int = 1) -> list[str]:
    """Return the command line of the server.

    Raises:
        SystemExit: If Ruby is not installed.
    """
    script = Path(str(resources.files("stallward.env.workloads.services.web"))) / "library.rb"
    return [needed("ruby", "ruby"), str(script), str(socket), str(books), str(seed)]


if __name__ == "__main__":
    run_program(__doc__, serve_command)
