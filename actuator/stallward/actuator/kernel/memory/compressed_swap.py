"""Swap that stays compressed in memory: zram devices, and the settings of zswap."""

from __future__ import annotations

import errno
import re
import time
from pathlib import Path
from typing import Final

from stallward.actuator.errors import KernelFileError
from stallward.actuator.kernel.files import read_text, write_text
from stallward.actuator.kernel.paths import Paths

ZRAM: Final = re.compile(r"/dev/zram(\d{1,6})", re.ASCII)
"""The path of a zram device, with its number."""
_CONTROL: Final = "class/zram-control"
_BUSY_TRIES: Final = 20
_BUSY_S: Final = 0.05


def zswap_dir(paths: Paths) -> Path:
    """The folder of the settings of zswap."""
    return paths.sys / "module" / "zswap" / "parameters"


def can_add_zram(paths: Paths) -> bool:
    """Whether this kernel makes further devices on request."""
    return (paths.sys / _CONTROL / "hot_add").exists()


def add_zram(paths: Paths) -> Path:
    """Make a new device, which holds no memory until it is given a size.

    Raises:
        KernelFileError: If the kernel makes none.
    """
    path = paths.sys / _CONTROL / "hot_add"
    number = read_text(path)  # each read makes a device
    if number is None:
        raise KernelFileError(path, "there is no such file", number=errno.ENOENT)
    return Path(f"/dev/zram{number}")


def zram_dir(device: Path, paths: Paths) -> Path:
    """The folder with the settings and counters of a device."""
    return paths.sys / "block" / device.name


def remove_zram(device: Path, paths: Paths) -> None:
    """Remove a device that is not swap any more, with all that it holds; harmless if it is gone.

    Raises:
        KernelFileError: If the kernel refuses.
    """
    number = ZRAM.fullmatch(str(device))
    if number is None or not zram_dir(device, paths).exists():
        return
    for attempt in range(_BUSY_TRIES):
        try:
            write_text(paths.sys / _CONTROL / "hot_remove", number[1])
        except KernelFileError as error:
            if error.number == errno.ENODEV:
                return
            # Whoever looks for file systems on new devices has it open for a moment.
            if error.number != errno.EBUSY or attempt == _BUSY_TRIES - 1:
                raise
            time.sleep(_BUSY_S)
        else:
            return
