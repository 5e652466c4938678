"""Temporary folders of our own: how they are named, and how one is removed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from stallward.actuator.errors import ActuatorError

PREFIX: Final = "stallward-"


def remove_folder(path: Path) -> None:
    """Remove a folder of our own with all that is in it; harmless if it is gone.

    Raises:
        ActuatorError: If it is not ours by name and owner, or something in it stays.
    """
    import shutil  # noqa: PLC0415 - costs memory that a waiting keeper does not need

    if not path.is_symlink() and not path.exists():
        return
    ours = path.name.startswith(PREFIX) and path.is_dir() and not path.is_symlink()
    if not ours or path.stat().st_uid != os.geteuid():
        raise ActuatorError(f"The folder {path} is not ours; it was left alone.")
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        return  # somebody else removes it too
    except OSError as error:
        raise ActuatorError(f"Cannot remove {path} ({error.strerror}).") from error
