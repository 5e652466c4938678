"""Where the kernel's files are; tests put their own here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """The roots of all kernel files that are read or written."""

    proc: Path = Path("/proc")
    cgroup: Path = Path("/sys/fs/cgroup")
    sys: Path = Path("/sys")
