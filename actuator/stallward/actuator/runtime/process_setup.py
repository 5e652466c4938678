"""Keeping a process prompt under memory pressure. Each step is best effort."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
from pathlib import Path
from typing import Final

_MCL_CURRENT: Final = 1
_MCL_FUTURE: Final = 2
_MCL_ONFAULT: Final = 4
_MADV_DONTNEED: Final = 4
_MADV_DONTNEED_LOCKED: Final = 24
"""Linux 5.18; without it only what is not locked yet can be let go."""
_NICE: Final = -15


def stay_in_memory() -> bool:
    """Lock what is mapped and will be, as it is touched; returns whether it was allowed."""
    libc = ctypes.CDLL(None, use_errno=True)
    # ONFAULT: without it every page of every library is read in and kept.
    return bool(libc.mlockall(_MCL_CURRENT | _MCL_FUTURE | _MCL_ONFAULT) == 0)


def let_go_of_code() -> None:
    """Unmap all program text; what is called again comes back from the page cache.

    Most of what libraries read in to start (and ONNX Runtime to load a model), some 15 MiB, is
    never called again. Locked, it would stay for good.
    """
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    try:
        lines = Path("/proc/self/maps").read_text("utf-8", "replace").splitlines()
    except OSError:
        return
    for line in lines:
        span, permissions, *_, inode = line.split(maxsplit=5)[:5]
        # Nothing is lost: text is a private mapping of a file that is never written to.
        if permissions == "r-xp" and inode != "0":
            start, end = (int(part, 16) for part in span.split("-"))
            if madvise(start, end - start, _MADV_DONTNEED_LOCKED) != 0:
                madvise(start, end - start, _MADV_DONTNEED)


def run_first() -> None:
    """Ask the scheduler to prefer the calling thread to ordinary ones.

    Niceness alone does not cross the scheduler's session groups (sched(7), autogroup), and a
    decision that is preempted by a hog takes 3 ms instead of 0.6. What is started from here on,
    threads too, is ordinary again: a thread that writes a limit may reclaim for a long time.
    """
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, _NICE)
    with contextlib.suppress(OSError):
        policy = os.SCHED_RR | os.SCHED_RESET_ON_FORK
        os.sched_setscheduler(0, policy, os.sched_param(1))


def quiet_collector() -> None:
    """Collect garbage now and only when asked to; what is alive now is never looked at again."""
    gc.collect()
    gc.freeze()
    gc.disable()
