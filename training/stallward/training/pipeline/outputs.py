"""Checks of the files that a command is going to write, before any long work."""

from __future__ import annotations

import os
from pathlib import Path

from stallward.agent.errors import UsageError

_NAME_ANOTHER = "Name another one with --out."


def check_writable(path: Path) -> None:
    """Refuse a path at which this user cannot create a file.

    Raises:
        UsageError: If its closest existing parent is not a directory that this user can write.
    """
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not folder.is_dir():
        raise UsageError(f"{folder} is a file, not a directory.", next_step=_NAME_ANOTHER)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"{folder} cannot be written by this user.", next_step=_NAME_ANOTHER)


def check_file(path: Path, *, kind: str, mark: bytes) -> None:
    """Refuse to overwrite a file of another kind.

    Args:
        path: The file that is going to be written.
        kind: The kind of file, in words.
        mark: Bytes that every file of this kind contains.

    Raises:
        UsageError: If there is a file of another kind, or the path cannot be written.
    """
    check_writable(path)
    if not path.exists():
        return
    try:
        same_kind = mark in path.read_bytes()
    except OSError:  # a directory, or another user's file
        same_kind = False
    if not same_kind:
        raise UsageError(f"{path} exists and is not {kind}.", next_step=_NAME_ANOTHER)
