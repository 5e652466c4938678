"""Programs of other projects: where they are, and running them once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys


def needed(program: str, package: str) -> str:
    """Return the path of a program, also of one for administrators.

    Raises:
        SystemExit: If it is not installed; the message names its Debian package.
    """
    path = shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if path is None:
        sys.exit(f"{program} is not installed; try `apt-get install {package}`")
    return path


def run(argv: list[str]) -> None:
    """Run a program.

    Raises:
        SystemExit: If it fails, with the end of what it wrote.
    """
    process = subprocess.run(argv, capture_output=True, text=True, check=False)
    if process.returncode != 0:
        sys.exit(f"{argv[0]} failed: {(process.stderr or process.stdout).strip()[-500:]}")
