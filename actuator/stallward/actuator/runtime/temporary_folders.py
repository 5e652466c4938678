"""Temporary folders, also for owners that are killed and cannot remove them.

The name of a folder holds its purpose and the pid of its owner. A process that makes a folder
first removes the folders of dead owners with the same purpose.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from stallward.actuator.errors import ActuatorError

PREFIX: Final = "stallward-"
_TRIES: Final = 10
_BETWEEN_TRIES_S: Final = 0.02
_BUSY: Final = frozenset({errno.ENOENT, errno.ENOTEMPTY})
"""Another process removes the folder, too, or one that is about to end still writes into it."""


def make_temporary_folder(kind: str, parent: Path | None = None, *, stale_s: float = 0.0) -> Path:
    """Make a folder that this process owns, and remove those that killed processes left.

    Args:
        kind: The purpose, one word for the folder's name.
        parent: Where to make it; the user's temporary folder if not given.
        stale_s: How long ago a dead owner's folder must have changed last to be removed.

    Returns:
        An empty folder, which its owner removes.
    """
    parent = Path(tempfile.gettempdir()) if parent is None else parent
    _remove_stale(parent, f"{PREFIX}{kind}-", stale_s)
    return Path(tempfile.mkdtemp(prefix=f"{PREFIX}{kind}-{os.getpid()}-", dir=parent))


@contextlib.contextmanager
def temporary_folder(kind: str, parent: Path | None = None) -> Iterator[Path]:
    """Make a temporary folder that is removed at the end of a ``with``."""
    folder = make_temporary_folder(kind, parent)
    try:
        yield folder
    finally:
        with contextlib.suppress(ActuatorError, OSError):  # the next start removes it
            remove_folder(folder)


def _remove_stale(parent: Path, prefix: str, stale_s: float) -> None:
    for folder in parent.glob(f"{prefix}*"):
        owner = folder.name.removeprefix(prefix).partition("-")[0]
        with contextlib.suppress(OSError, ActuatorError):
            old = time.time() - folder.lstat().st_mtime >= stale_s
            if old and owner.isdecimal() and not _is_alive(int(owner)):
                remove_folder(folder)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)  # sends no signal
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # it belongs to another user
        return True
    return True


def remove_folder(path: Path) -> None:
    """Remove one of our temporary folders with all its contents; harmless if it is gone.

    Raises:
        ActuatorError: If its name or its owner is not ours, or it cannot be removed.
    """
    try:
        status = path.lstat()  # called once: another process may be removing the folder, too
    except FileNotFoundError:
        return
    ours = path.name.startswith(PREFIX) and stat.S_ISDIR(status.st_mode)
    if not ours or status.st_uid != os.geteuid():
        raise ActuatorError(f"The folder {path} is not ours; it was left alone.")
    for tries_left in reversed(range(_TRIES)):
        try:
            shutil.rmtree(path)
        except OSError as error:
            if not path.exists():
                return
            if tries_left and error.errno in _BUSY:
                time.sleep(_BETWEEN_TRIES_S)
                continue
            raise ActuatorError(f"Cannot remove {path} ({error.strerror}).") from error
        return
