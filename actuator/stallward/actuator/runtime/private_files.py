"""Files that only their owner may read, and that are replaced as a whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO


def replace_file(path: Path, content: bytes) -> None:
    """Write a file again, as a whole or not at all.

    Raises:
        OSError: If it cannot be written.
    """
    partial = path.with_suffix(".partial")
    with open_private(partial, os.O_TRUNC) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(path)
    sync_folder(path.parent)


def open_private(path: Path, flags: int) -> BinaryIO:
    """Open a file that only its owner may read, and that is not a link."""
    all_flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | flags
    return os.fdopen(os.open(path, all_flags, 0o600), "wb" if flags & os.O_TRUNC else "ab")


def sync_folder(folder: Path) -> None:
    """Wait until the disk has the names in a folder."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
