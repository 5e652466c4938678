"""Making and removing the directories of a group, in one hierarchy at a time."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from stallward.actuator.errors import KernelFileError
from stallward.actuator.kernel.files import read_text, write_text

_CONTROLLERS: Final = ("memory", "io", "cpu", "cpuset", "pids")
_MAKE_TRIES: Final = 50
_RETRY_S: Final = 0.02


def walk(top: Path) -> Iterator[Path]:
    """``top`` and every directory below it, parents first."""
    for path, names, _ in os.walk(top):
        names.sort()
        yield Path(path)


def remove_dirs(top: Path) -> OSError | None:
    """Remove a cgroup directory, children first; the first failure is returned."""
    for path in reversed(list(walk(top))):
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
