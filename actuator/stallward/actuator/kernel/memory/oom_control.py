"""v1 memory.oom_control: whether the kernel kills in a group, or lets its processes wait."""

from __future__ import annotations

import contextlib
from collections.abc import Container
from pathlib import Path
from typing import Final

from stallward.actuator.errors import KernelFileError
from stallward.actuator.kernel.cgroups import Walk
from stallward.actuator.kernel.files import read_text, write_text

OOM_CONTROL: Final = "memory.oom_control"
KILL_DISABLED: Final = "oom_kill_disable"
"""The line that says whether processes wait; the file takes its value."""
UNDER_OOM: Final = "under_oom"
"""The line that says whether any process waits now."""
WAIT: Final = "1"
KILL: Final = "0"
_MOST_INSIDE: Final = 128
"""How many groups inside one are looked at, which takes some milliseconds of a tick."""


def oom_control(path: Path) -> dict[str, str]:
    """Return the lines of the file by their keys; empty if it is not there.

    Raises:
        KernelFileError: If it is there but cannot be read.
    """
    lines = (line.partition(" ") for line in (read_text(path) or "").splitlines())
    return {key: value for key, _, value in lines}


def waiting_inside(folder: Path) -> tuple[Path, ...]:
    """Return the files of the groups below ``folder`` whose processes wait for memory.

    Raises:
        KernelFileError: If there are too many groups to look at, or one cannot be read.
    """
    walk = Walk(folder, most=_MOST_INSIDE)
    paths = tuple(inside / OOM_CONTROL for inside in walk if inside != folder)
    if walk.cut:
        raise KernelFileError(folder, f"more than {_MOST_INSIDE} groups are inside")
    return tuple(path for path in paths if oom_control(path).get(KILL_DISABLED) == WAIT)


def reset_inherited(folder: Path, keep: Container[Path]) -> None:
    """Let the kernel kill in the groups below ``folder`` that were made while theirs waited.

    Args:
        folder: The directory of a group that does not wait any more.
        keep: The files of those that waited before it did.
    """
    for inside in Walk(folder, most=_MOST_INSIDE):
        path = inside / OOM_CONTROL
        if inside == folder or path in keep:
            continue
        with contextlib.suppress(KernelFileError):  # it was removed just now
            if oom_control(path).get(KILL_DISABLED) == WAIT:
                write_text(path, KILL)
