"""Whether a program that the daemon is to run can be changed by other users."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Final

from stallward.agent.believed_file import may_be_believed

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
