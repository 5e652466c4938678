"""A folder that is made once, by whichever process needs it first."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Callable
from pathlib import Path


def made_once(target: Path, fill: Callable[[Path], None]) -> Path:
    """Return the folder ``target``; if it is not there, ``fill`` fills it under another name first.

    A process that ends meanwhile leaves no folder that looks complete, and frees the lock.
    """
    part = target.with_name(f"{target.name}.part")
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_name(f"{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            try:
                fill(part)
                part.rename(target)
            finally:
                shutil.rmtree(part, ignore_errors=True)
    return target
