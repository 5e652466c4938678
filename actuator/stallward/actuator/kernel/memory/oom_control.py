"""v1 memory.oom_control: whether the kernel kills in a group, or lets its processes wait."""

from __future__ import annotations

import contextlib
from collections.abc import Container
from pathlib import Path
from typing import Final

from stallward.actuator.errors import KernelFileError
from stallward.actuator.kernel.cgroup_dirs import walk
from stallward.actuator.kernel.files import read_text, write_text

OOM_CONTROL: Final = "memory.oom_control"
KILL_DISABLED: Final = "oom_kill_disable"
"""The line that says whether processes wait; the file takes its value."""
UNDER_OOM: Final = "under_oom"
"""The line that says whether any process waits now."""
WAIT: Final = "1"
KILL: Final = "0"


def oom_control(path: Path) -> dict[str, str]:
    """Return the lines of the file by their keys; empty if it is not there.

    Raises:
        KernelFileError: If it is there but cannot be read.
    """
    lines = (line.partition(" ") for line in (read_text(path) or "").splitlines())
    return {key: value for key, _, value in lines}


def waiting_inside(folder: Path) -> tuple[Path, ...]:
    """Return the files of the groups below ``folder`` whose processes wait for memory."""
    paths = (inside / OOM_CONTROL for inside in walk(folder) if inside != folder)
    return tuple(path for path in paths if oom_control(path).get(KILL_DISABLED) == WAIT)


def reset_inherited(folder: Path, keep: Container[Path]) -> None:
    """Let the kernel kill in the groups below ``folder`` that were made while theirs waited.

    Args:
        folder: The directory of a group that does not wait any more.
        keep: The files of those that waited before it did.
    """
    for path in waiting_inside(folder):
        if path not in keep:
            with contextlib.suppress(KernelFileError):  # it was removed just now
                write_text(path, KILL)
