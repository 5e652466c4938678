"""Runs a service that is a script beside this file, by the interpreter of its language.

``python -m stallward.research.unseen.script stock.lisp --socket PATH --size N`` becomes the
interpreter. It answers lines on that Unix socket.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Final

from stallward.env.workloads.command_line import run_program
from stallward.env.workloads.services.programs import needed

_INTERPRETERS: Final = {
    "basket.pl": ("perl", "perl"),
    "family.pl": ("swipl", "swi-prolog-nox"),
    "stock.lisp": ("sbcl", "sbcl", "--dynamic-space-size", "2GB", "--script"),
}
"""For each script the interpreter, its Debian package, and its options."""


def serve_command(
    script: str, /, *, socket: Path, size: int = 100_000, seed: int = 1
) -> list[str]:
    """Return the command line of the interpreter.

    Raises:
        SystemExit: If it is not installed.
    """
    program, package, *options = _INTERPRETERS[script]
    file = Path(str(resources.files("stallward.research.unseen"))) / script
    return [needed(program, package), *options, str(file), str(socket), str(size), str(seed)]


if __name__ == "__main__":
    run_program(__doc__, serve_command)
