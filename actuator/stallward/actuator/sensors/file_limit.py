"""How many files the process may keep open."""

from __future__ import annotations

import resource
from typing import Final

_OTHERS: Final = 256
"""Sockets, levers and what else the process opens."""


def allow_open_files(count: int) -> None:
    """Raise the soft limit, if need be and as far as the hard one allows, for ``count`` files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + _OTHERS
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    if hard != resource.RLIM_INFINITY:
        wanted = max(min(wanted, hard), soft)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
