"""The command line of a server that prepares its data once and is then started again and again."""

from __future__ import annotations

import argparse
from pathlib import Path


def prepare_or_serve(
    description: str | None, *, place: str = "socket", **numbers: int
) -> argparse.Namespace:
    """Read ``prepare FOLDER`` or ``serve FOLDER --socket PATH`` from the command line.

    Args:
        description: The docstring of the server's module.
        place: The option that takes a path and that ``serve`` needs.
        numbers: The options with whole numbers, by their names, with their defaults.

    Returns:
        ``action``, ``folder``, the path and the numbers. With ``serve`` there is a path.
    """
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument("action", choices=("prepare", "serve"))
    parser.add_argument("folder", type=Path)
    parser.add_argument(f"--{place}", type=Path)
    for name, default in numbers.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default)
    args = parser.parse_args()
    if args.action == "serve" and getattr(args, place) is None:
        parser.error(f"serve needs --{place}")
    return args
