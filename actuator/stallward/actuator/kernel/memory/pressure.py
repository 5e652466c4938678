"""Finding out whether a PSI file can be read, and if not, what to do.

The files are there also where PSI is compiled in and switched off: reading one then fails. Of a
single group it is switched off by its ``cgroup.pressure``, which hides the group's files.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stallward.actuator.errors import KernelFileError
from stallward.actuator.kernel.files import ABSENT, OFF, read_text, reading_error
from stallward.actuator.kernel.refusals import next_step

GROUP_SUFFIX: Final = ".pressure"
"""The end of the names of a group's PSI files."""
_SWITCH: Final = "cgroup.pressure"
_BOOT: Final = "Boot a kernel with CONFIG_PSI=y and psi=1."


def is_psi(path: Path) -> bool:
    """Whether this is a PSI file, of the machine or of a group."""
    return path.suffix == GROUP_SUFFIX or path.parent.name == "pressure"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoPsi:
    """Why a PSI file cannot be read."""

    cause: str
    next_step: str
    off: bool = False
    """Whether it is switched off, so that it could be there."""


def why_no_psi(path: Path) -> NoPsi | None:
    """Say why a PSI file cannot be read; ``None`` if it can.

    Args:
        path: The file, such as /proc/pressure/memory or memory.pressure of a group.
    """
    number = reading_error(path)
    if number == 0:
        return None
    if number == OFF:
        cause = f"PSI is off: {path} is there and cannot be read"
        return NoPsi(cause=cause, next_step="Boot with psi=1.", off=True)
    if number not in ABSENT:
        cause = f"{path} cannot be read ({os.strerror(number)})"
        return NoPsi(cause=cause, next_step=next_step(number, path))
    switch = path.parent / _SWITCH
    if number == errno.ENOENT and path.suffix == GROUP_SUFFIX and _is_zero(switch):
        cause = f"PSI of this group is off: {switch} is 0"
        return NoPsi(cause=cause, next_step=f"Write 1 to {switch}.", off=True)
    return NoPsi(cause=f"{path} is not there", next_step=_BOOT)


def _is_zero(switch: Path) -> bool:
    try:
        return read_text(switch) == "0"
    except KernelFileError:
        return False
