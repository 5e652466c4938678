"""What a command is asked to write, looked at before the work that takes long."""

from __future__ import annotations

import os
from pathlib import Path

from stallward.agent.errors import UsageError

_OTHER = "Name another one with --out."


def check_writable(path: Path) -> None:
    """Refuse a place where nothing can be made.

    Raises:
        UsageError: If what is there of the way to ``path`` is no directory of this user's.
    """
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not folder.is_dir():
        raise UsageError(f"{folder} is a file, not a directory.", next_step=_OTHER)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"{folder} cannot be written by this user.", next_step=_OTHER)


def check_file(path: Path, *, kind: str, mark: bytes) -> None:
    """Refuse to overwrite what is not of the same kind.

    Args:
        path: The file that is going to be written.
        kind: What it is, in words.
        mark: What every file of the kind holds.

    Raises:
        UsageError: If something else is there, or it cannot be written.
    """
    check_writable(path)
    if not path.exists():
        return
    try:
        known = mark in path.read_bytes()
    except OSError:  # a directory, or somebody else's
        known = False
    if not known:
        raise UsageError(f"{path} exists and is not {kind}.", next_step=_OTHER)
