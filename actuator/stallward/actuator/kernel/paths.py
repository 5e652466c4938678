"""Where the kernel's files are; tests put their own here.

This is the only file that says where a system has them. Everything else is handed a
:class:`Paths`, or one of its roots, by whoever starts it: a command or a configuration.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """The roots of all kernel files that are read or written."""

    proc: Path = Path("/proc")
    cgroup: Path = Path("/sys/fs/cgroup")
    sys: Path = Path("/sys")


DEFAULT_PATHS: Final = Paths()
"""This machine's own."""
RUN: Final = Path("/run")
"""Where services keep sockets and pid files."""
SOCKET: Final = RUN / "stallward/actuator.sock"
"""The daemon's socket, unless it is configured elsewhere."""
