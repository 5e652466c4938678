"""The command lines of the programs: paths that must be given, and whole numbers."""

from __future__ import annotations

import argparse
from pathlib import Path


def arguments(description: str | None, *paths: str, **numbers: int | None) -> argparse.Namespace:
    """Read the arguments of this process.

    Args:
        description: The docstring of the program's module.
        paths: The paths, all needed: ``folder`` stands for itself, ``--socket`` is an option.
        numbers: The options with whole numbers, by their names, with their defaults; ``None``
            where one must be given.
    """
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    for name in paths:
        if name.startswith("-"):
            parser.add_argument(name, type=Path, required=True)
        else:
            parser.add_argument(name, type=Path)
    for name, default in numbers.items():
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, type=int, default=default, required=default is None)
    return parser.parse_args()
