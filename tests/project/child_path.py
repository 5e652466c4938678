"""What programs that a test starts import."""

from __future__ import annotations

import os
from pathlib import Path

import stallward


def python_path(*folders: Path) -> str:
    """A ``PYTHONPATH`` of modules in ``folders``, and of the tree that the test itself imports.

    Without the tree, another one may be imported that is installed in this environment.
    """
    tree = [str(Path(package).parent) for package in stallward.__path__]
    before = os.environ.get("PYTHONPATH")
    return os.pathsep.join([*map(str, folders), *tree, *([before] if before else [])])
