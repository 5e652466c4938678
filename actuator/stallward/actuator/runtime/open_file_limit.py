"""The limit of open files of a process that keeps many open: signals, or what undoes changes."""

from __future__ import annotations

import resource
from typing import Final

_OTHER_FILES: Final = 256
"""Room for the sockets and other files that the process opens."""


def allow_open_files(count: int) -> None:
    """Raise the soft limit of open files for ``count`` files, as far as the hard limit allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + _OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    if hard != resource.RLIM_INFINITY:
        wanted = max(min(wanted, hard), soft)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
