"""Making and removing the directories of a group, in one hierarchy at a time."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from stallward.actuator.errors import KernelFileError
from stallward.actuator.kernel.files import read_text, write_text

_CONTROLLERS: Final = ("memory", "io", "cpu", "cpuset", "pids")
_MAKE_TRIES: Final = 50
_RETRY_S: Final = 0.02
_FEW: Final = 32
"""So many groups are looked through at once, in two milliseconds."""
MOST_DEPTH: Final = 64
"""How deep a walk with a bound goes: a path of a thousand groups takes long to look up."""


class Walk(Iterator[Path]):
    """A group's directory and all below it, parents first, one at each step.

    Whoever owns a group decides how many are below it, and how deep. So this neither recurses, as
    ``os.walk`` does before Python 3.12, nor must it be done at once, and it can have a bound.

    Args:
        top: The group's directory.
        most: How many directories are walked at most, and of each at most as many children, down
            to :data:`MOST_DEPTH`; all by default.
    """

    def __init__(self, top: Path, *, most: int | None = None) -> None:
        self.cut = False
        """Whether anything was left out because of a bound."""
        self._most = most
        self._taken = 0
        self._left = [(str(top), 0)]

    def __next__(self) -> Path:
        if not self._left:
            raise StopIteration
        if self._taken == self._most:
            self.cut = True
            self._left.clear()
            raise StopIteration
        path, depth = self._left.pop()
        self._taken += 1
        bound = self._most
        try:
            with os.scandir(path) as entries:
                folders = (entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
                below = list(folders if bound is None else islice(folders, bound + 1))
        except OSError as error:  # normally the group is gone
            self.cut = self.cut or error.errno == errno.ENAMETOOLONG
            return Path(path)
        if bound is not None and below and (depth >= MOST_DEPTH or len(below) > bound):
            self.cut = True
            del below[0 if depth >= MOST_DEPTH else bound :]
        below.sort(reverse=True)
        self._left += [(name, depth + 1) for name in below]
        return Path(path)


def few_below(top: Path) -> list[Path] | None:
    """``top`` and every directory below it; ``None`` if they are more than a few."""
    walk, found = Walk(top, most=_FEW), []
    for path in walk:
        found.append(path)
        if walk.cut:  # the first look may show it
            break
    return None if walk.cut else found


def remove_dirs(top: Path) -> OSError | None:
    """Remove a cgroup directory, children first; the first failure is returned."""
    for path in reversed(list(Walk(top))):
        try:
            path.rmdir()
        except OSError as error:
            if error.errno not in {errno.ENOENT, errno.ENODEV}:
                return error
    return None


def make_dirs(root: Path, name: str, *, v2: bool) -> list[Path]:
    """Make the group ``name`` and its parents below ``root``; returns the new directories.

    Args:
        root: The root of a hierarchy.
        name: A group's name.
        v2: Whether controllers must be enabled on the way down.

    Raises:
        OSError: If a directory cannot be made.
        KernelFileError: If the memory controller cannot be enabled.
    """
    # Another owner that ends may remove an empty common parent between two mkdirs.
    for attempt in range(_MAKE_TRIES):
        made: list[Path] = []
        path = root
        try:
            for part in name.split("/") if name else []:
                if v2:
                    _enable_controllers(path)
                path = path / part
                with contextlib.suppress(FileExistsError):
                    path.mkdir()
                    made.append(path)
                    _use_hierarchy(path)
        except (FileNotFoundError, KernelFileError) as error:
            missing = isinstance(error, FileNotFoundError) or error.number == errno.ENOENT
            if not missing or attempt == _MAKE_TRIES - 1 or not root.is_dir():
                raise
            time.sleep(_RETRY_S)
            continue
        return made
    return []


def _enable_controllers(path: Path) -> None:
    """Enable for the children of ``path`` every controller that is used here and available."""
    available = (read_text(path / "cgroup.controllers") or "").split()
    enabled = (read_text(path / "cgroup.subtree_control") or "").split()
    for name in _CONTROLLERS:
        if name not in available or name in enabled:
            continue
        try:
            write_text(path / "cgroup.subtree_control", f"+{name}")
        except KernelFileError:
            # Limits and statistics need memory; the others only make the sandbox finer.
            if name == "memory":
                raise


def _use_hierarchy(path: Path) -> None:
    """Make a new v1 memory group count its children (the kernel always does since 5.11)."""
    if read_text(path / "memory.use_hierarchy") == "0":
        write_text(path / "memory.use_hierarchy", "1")
