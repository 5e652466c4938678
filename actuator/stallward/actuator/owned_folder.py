"""Temporary folders of our own: how they are named, and how one is removed."""

from __future__ import annotations

import errno
import os
import stat
import time
from pathlib import Path
from typing import Final

from stallward.actuator.errors import ActuatorError

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
