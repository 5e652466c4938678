"""The temporary folder of a daemon that a program runs, and what killed programs left."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from pathlib import Path
from typing import Final

from stallward.actuator.errors import ActuatorError
from stallward.actuator.owned_folder import PREFIX, remove_folder

_PREFIX: Final = f"{PREFIX}daemon-"
_STALE_S: Final = 60.0
"""An owner dead for so long has no guardian any more that still uses the folder."""


def make_daemon_folder(parent: Path | None = None) -> Path:
    """Make a folder for one daemon.

    Args:
        parent: Where; the user's temporary folder if not given, in which folders of dead owners
            are removed first.
    """
    if parent is None:
        parent = Path(tempfile.gettempdir())
        remove_stale(parent)
    return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=parent))


def remove_stale(parent: Path) -> None:
    """Remove folders whose owner is gone: it and the guardian were killed together."""
    for folder in parent.glob(f"{_PREFIX}*"):
        owner = folder.name.removeprefix(_PREFIX).partition("-")[0]
        with contextlib.suppress(OSError, ActuatorError):
            old = time.time() - folder.lstat().st_mtime > _STALE_S
            if old and owner.isdigit() and not Path("/proc", owner).exists():
                remove_folder(folder)
