"""How much of a group's memory may still go to swap, by the limits of groups (v2).

Kubernetes allows containers no swap by default: their runtime writes 0 to ``memory.swap.max`` of
each container's group, below that of the pod. So the groups directly inside a group count as well
as the group itself and those around it.
"""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path
from typing import Final

from stallward.actuator.errors import KernelFileError
from stallward.actuator.kernel.files import read_text

RESCAN_S: Final = 2.0
"""How often the limits are read again, and the groups inside listed."""
_DIGITS: Final = 19
"""The kernel counts pages in 63 bits."""
_MOST_INSIDE: Final = 64
"""If there are more groups inside, they are not looked at."""


class SwapRoom:
    """Reads the room of one group.

    Where no limit is set, as on most nodes, or it is 0, as in most pods, only rescans read files.

    Args:
        root: The root of the v2 hierarchy.
        group: The group's folder.
    """

    def __init__(self, root: Path, group: Path) -> None:
        around = [group, *group.parents]
        self._chain = tuple(around[: around.index(root)]) if root in around else ()
        self._group = group
        self._due_s = float("-inf")
        self._limits: dict[Path, int] = {}
        """The limit of each group around, and of the group itself, that has one."""
        self._inside: dict[Path, int | None] = {}
        """The limit of each group inside; empty if none of them has one."""

    def read(self, now_s: float) -> int | None:
        """Read how many bytes may still go to swap; ``None`` if no limit is set, or none is known.

        Args:
            now_s: The time now (CLOCK_MONOTONIC).
        """
        if now_s >= self._due_s:
            self._scan()
            self._due_s = now_s + RESCAN_S
        rooms = [_left(folder, limit) for folder, limit in self._limits.items()]
        if self._inside:
            rooms.append(sum(_swappable(path, limit) for path, limit in self._inside.items()))
        return min(rooms, default=None)

    def _scan(self) -> None:
        """Read all limits."""
        limits = {folder: _limit(folder) for folder in self._chain}
        self._limits = {folder: limit for folder, limit in limits.items() if limit is not None}
        inside = {folder: _limit(folder) for folder in _folders(self._group)}
        limited = any(limit is not None for limit in inside.values())
        self._inside = inside if limited else {}


def _folders(group: Path) -> list[Path]:
    try:
        with os.scandir(group) as entries:
            folders = (entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
            found = [Path(path) for path in islice(folders, _MOST_INSIDE + 1)]
    except OSError:
        return []
    return found if len(found) <= _MOST_INSIDE else []


def _limit(folder: Path) -> int | None:
    """The limit of one group; ``None`` if it has none, or cannot be read."""
    return _number(folder / "memory.swap.max")


def _number(path: Path) -> int | None:
    try:
        text = read_text(path) or ""
    except KernelFileError:
        return None
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS else None


def _left(folder: Path, limit: int) -> int:
    """How much of its limit a group has left."""
    return 0 if limit == 0 else max(limit - (_number(folder / "memory.swap.current") or 0), 0)


def _swappable(folder: Path, limit: int | None) -> int:
    """How much of the memory of a group inside may go to swap: no more than it uses."""
    if limit == 0:
        return 0
    used = _number(folder / "memory.current") or 0
    return used if limit is None else min(used, _left(folder, limit))
