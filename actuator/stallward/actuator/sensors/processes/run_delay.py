"""Whether the kernel counts how long threads wait for a CPU.

/proc/PID/schedstat is there in any case. A kernel that does not count (without CONFIG_SCHEDSTATS,
and with delay accounting off, which is the default) writes zeros into it.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Final

from stallward.actuator.errors import KernelFileError
from stallward.actuator.kernel.files import read_bytes

NOTHING: Final = b"0 0 0\n"
"""The content of a thread that has never run, and of every thread where nothing is counted."""
NOT_COUNTED: Final = "this kernel counts no waiting for a CPU (boot with delayacct)"


@functools.cache
def is_counted(proc: Path) -> bool:
    """Whether run delays are counted: this process has run, so its own counters are not zeros."""
    try:
        return read_bytes(proc / "self" / "schedstat") != NOTHING
    except KernelFileError:
        return True
