"""The limit of open files of a process that keeps many: signals, what undoes changes, clients."""

from __future__ import annotations

import resource
from typing import Final

OTHER_FILES: Final = 256
"""Room for the sockets, levers and other files that the process opens."""


def allow_open_files(count: int) -> int:
    """Raise the soft limit of open files for ``count`` files, as far as the hard limit allows.

    Returns:
        How many of them there is room for.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return count
    if hard != resource.RLIM_INFINITY:
        wanted = max(min(wanted, hard), soft)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return max(wanted - OTHER_FILES, 0)
