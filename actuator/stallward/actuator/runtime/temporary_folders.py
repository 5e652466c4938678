"""Temporary folders that go with their owner, if need be at the next start of another.

A folder's name says what it is for and which process owns it. Who is killed leaves its folders
behind; whoever makes one for the same purpose removes those of the dead first.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from stallward.actuator.errors import ActuatorError


def make_temporary_folder(kind: str, parent: Path | None = None, *, stale_s: float = 0.0) -> Path:
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
def temporary_folder(kind: str, parent: Path | None = None) -> Iterator[Path]:
    """A folder for a ``with``; see :func:`make_temporary_folder`."""
    folder = make_temporary_folder(kind, parent)
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
            if old and owner.isdecimal() and not _is_alive(int(owner)):
                remove_folder(folder)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)  # asks only
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # somebody else's
        return True
    return True


PREFIX: Final = "stallward-"


_TRIES: Final = 10


_BETWEEN_S: Final = 0.02


_BUSY: Final = frozenset({errno.ENOENT, errno.ENOTEMPTY})
"""Somebody else removes it too, or a process that is about to end still writes into it."""


def remove_folder(path: Path) -> None:
    """Remove a folder of our own with all that is in it; harmless if it is gone.

    Raises:
        ActuatorError: If it is not ours by name and owner, or something in it stays.
    """
    import shutil  # noqa: PLC0415 - costs memory that a waiting keeper does not need

    try:
        found = path.lstat()  # looked at once: somebody else may be removing it too
    except FileNotFoundError:
        return
    ours = path.name.startswith(PREFIX) and stat.S_ISDIR(found.st_mode)
    if not ours or found.st_uid != os.geteuid():
        raise ActuatorError(f"The folder {path} is not ours; it was left alone.")
    for left in reversed(range(_TRIES)):
        try:
            shutil.rmtree(path)
        except OSError as error:
            if not path.exists():
                return
            if left and error.errno in _BUSY:
                time.sleep(_BETWEEN_S)
                continue
            raise ActuatorError(f"Cannot remove {path} ({error.strerror}).") from error
        return
