"""The scheduler's settings of a thread: its nice value, its CPUs and its timeslice.

They are per thread and inherited by new threads and processes. They cannot be set by pidfd: if a
thread ends after its start time was checked and before the call, another thread may have the same
number by then. For that all other numbers must have been used within microseconds.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Final

from stallward.actuator.errors import KernelFileError
from stallward.actuator.kernel.files import read_bytes
from stallward.actuator.kernel.paths import Paths
from stallward.actuator.kernel.threads.timeslice import read_slice_us, write_slice_us

NICE: Final = "nice"
CPUS: Final = "cpus"
SLICE: Final = "slice_us"

_WORST_NICE: Final = 19
_RATIO_PER_NICE: Final = 1.25
"""How much more CPU time a thread gets than one whose nice value is 1 worse (sched(7))."""
_NORMAL_WEIGHT: Final = 100


def nice_of_weight(weight: int) -> int:
    """The nice value that gives threads about the share of a group with this cpu.weight.

    It is never better than 0: that of a weight of 100.
    """
    steps = math.log(_NORMAL_WEIGHT / weight) / math.log(_RATIO_PER_NICE)
    return min(max(round(steps), 0), _WORST_NICE)


def thread_ids(proc: Path, pid: int) -> tuple[int, ...]:
    """The threads of a process, ascending; none if it is gone."""
    try:
        with os.scandir(proc / str(pid) / "task") as tasks:
            return tuple(sorted(int(task.name) for task in tasks if task.name.isdigit()))
    except OSError:
        return ()


def format_cpus(cpus: frozenset[int] | set[int] | tuple[int, ...]) -> str:
    """The text of a set of CPUs, e.g. ``0,2``."""
    return ",".join(str(cpu) for cpu in sorted(set(cpus)))


def read_value(what: str, tid: int) -> str | None:
    """Read a setting of a thread; ``None`` if the thread is gone, or has none of this kind.

    Raises:
        KernelFileError: If the setting cannot be read.
    """
    try:
        if what == NICE:
            return str(os.getpriority(os.PRIO_PROCESS, tid))
        if what == SLICE:
            slice_us = read_slice_us(tid)
            return None if slice_us is None else str(slice_us)
        return format_cpus(os.sched_getaffinity(tid))
    except ProcessLookupError:
        return None
    except OSError as error:
        raise _failure("read", what, tid, error) from error


def write_value(what: str, tid: int, value: str) -> bool:
    """Change a setting of a thread; returns whether the thread was still there.

    Raises:
        KernelFileError: If the kernel refuses.
    """
    try:
        if what == NICE:
            os.setpriority(os.PRIO_PROCESS, tid, int(value))
        elif what == SLICE:
            write_slice_us(tid, int(value))
        else:
            os.sched_setaffinity(tid, {int(cpu) for cpu in value.split(",")})
    except ProcessLookupError:
        return False
    except (OSError, ValueError) as error:
        raise _failure(f"set {value} as", what, tid, error) from error
    return True


def _failure(verb: str, what: str, tid: int, error: Exception) -> KernelFileError:
    number = getattr(error, "errno", None) or 0
    reason = os.strerror(number) if number else str(error)
    return KernelFileError(f"thread {tid}", f"cannot {verb} its {what} ({reason})", number=number)


def read_online_cpus(paths: Paths) -> frozenset[int] | None:
    """Return the CPUs that are online; ``None`` if the kernel does not say.

    Raises:
        KernelFileError: If the file is there but cannot be read.
    """
    words = (
        line.split(b" ", 1)[0] for line in (read_bytes(paths.proc / "stat") or b"").split(b"\n")
    )
    cpus = frozenset(
        int(word[3:]) for word in words if word.startswith(b"cpu") and word[3:].isdigit()
    )
    return cpus or None
