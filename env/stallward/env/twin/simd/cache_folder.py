"""Where compiled code is kept."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
from pathlib import Path

from numba import config

from stallward.actuator.runtime.temporary_folders import make_temporary_folder


@functools.cache
def cache_folder() -> Path | None:
    """Return the folder in which compiled code is kept; ``None`` if nothing can be written."""
    given = Path(config.CACHE_DIR) if config.CACHE_DIR else None
    for folder in (given, user_folder()):
        if folder is not None and _writable(folder):
            return folder
    try:
        temporary = make_temporary_folder("kernels")
    except OSError:
        return None
    atexit.register(shutil.rmtree, temporary, ignore_errors=True)
    return temporary


def user_folder() -> Path | None:
    """Return the folder in the user's cache; ``None`` for a user without a home."""
    cache = os.environ.get("XDG_CACHE_HOME")
    try:
        return Path(cache or Path.home() / ".cache") / "stallward"
    except RuntimeError:  # as in a container that runs as a number without a name
        return None


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True
