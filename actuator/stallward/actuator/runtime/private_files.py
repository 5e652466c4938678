"""Files that only their owner may read, and that are replaced as a whole or not at all."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import BinaryIO, Final

from stallward.agent.believed_file import may_be_believed


def replace_file(path: Path, content: bytes) -> None:
    """Write a file again, as a whole or not at all.

    Raises:
        OSError: If it cannot be written.
    """
    partial = path.with_suffix(".partial")
    try:
        with open_private(partial, os.O_TRUNC) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(path)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
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


SAFE_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The ``PATH`` of programs that the daemon runs."""


def changeable_by_others(program: Path) -> str:
    """The program, or a folder on the way to it, that other users can change; empty if none is.

    Raises:
        OSError: If it does not exist.
    """
    whole = program.resolve(strict=True)
    for path in (whole, *whole.parents, *program.parents):
        status = path.stat()
        sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
        # Nobody replaces what another one has put into a sticky folder.
        if not sticky and not may_be_believed(status):
            return str(path)
    return ""
