"""A folder as a hostile user leaves it: with a module for every name that a program imports."""

from __future__ import annotations

import os
import sys
from pathlib import Path

NAMES = ("numpy", "grpc", "stallward", "google", "typer")
"""Modules that are not Python's own, beside all that are."""
# It imports nothing itself, because that would be planted, too.
PLANTED = """with open({mark!r}, "a") as marks:
    marks.write(__name__ + "\\n")
raise SystemExit("a planted module was imported")
"""


def plant(folder: Path) -> Path:
    """Plant the modules; returns a file that is there once one was imported."""
    mark = folder / "imported"
    for name in {*sys.stdlib_module_names, *NAMES}:
        (folder / f"{name}.py").write_text(PLANTED.format(mark=str(mark)))
    return mark


def without_python_settings() -> dict[str, str]:
    """The environment without what changes where Python looks for modules."""
    kept = os.environ.items()
    return {name: value for name, value in kept if not name.startswith("PYTHON")}
