"""Temporary folders that go with their owner, if need be at the next start of another.

A folder's name says what it is for and which process owns it. Who is killed leaves its folders
behind; whoever makes one for the same purpose removes those of the dead first.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from stallward.actuator.errors import ActuatorError
from stallward.actuator.owned_folder import PREFIX, remove_folder


def make_passing(kind: str, parent: Path | None = None, *, stale_s: float = 0.0) -> Path:
    """Make a folder that this process owns, and remove those that killed processes left.

    Args:
        kind: What it is for: a word for its name.
        parent: Where; the user's temporary folder if not given.
        stale_s: For how long the folders of the dead must not have changed.

    Returns:
        An empty folder. Its owner removes it.
    """
    parent = Path(tempfile.gettempdir()) if parent is None else parent
    _remove_stale(parent, f"{PREFIX}{kind}-", stale_s)
    return Path(tempfile.mkdtemp(prefix=f"{PREFIX}{kind}-{os.getpid()}-", dir=parent))


@contextlib.contextmanager
def passing_folder(kind: str, parent: Path | None = None) -> Iterator[Path]:
    """A folder for a ``with``; see :func:`make_passing`."""
    folder = make_passing(kind, parent)
    try:
        yield folder
    finally:
        with contextlib.suppress(ActuatorError, OSError):  # what stays goes at the next start
            remove_folder(folder)


def _remove_stale(parent: Path, prefix: str, stale_s: float) -> None:
    for folder in parent.glob(f"{prefix}*"):
        owner = folder.name.removeprefix(prefix).partition("-")[0]
        with contextlib.suppress(OSError, ActuatorError):
            old = time.time() - folder.lstat().st_mtime >= stale_s
            if old and owner.isdigit() and not Path("/proc", owner).exists():
                remove_folder(folder)
