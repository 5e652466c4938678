"""Set-up that keeps a process fast under memory pressure. Each step is best effort."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import grp
import os
import resource
from pathlib import Path
from typing import Final

from stallward.actuator.errors import DaemonError

_MCL_CURRENT: Final = 1
_MCL_FUTURE: Final = 2
_MCL_ONFAULT: Final = 4
_MADV_DONTNEED: Final = 4
_MADV_DONTNEED_LOCKED: Final = 24
"""Since Linux 5.18; an older kernel can only release pages that are not locked yet."""
_NICE: Final = -15
_M_TRIM_THRESHOLD: Final = -1
_M_ARENA_MAX: Final = -8
_TRIM_BYTES: Final = 128 << 10


def lock_memory() -> bool:
    """Lock all pages, now and later, as they are touched; return whether it was allowed."""
    libc = ctypes.CDLL(None, use_errno=True)
    # Without ONFAULT, every page of every library would be read in and kept.
    return bool(libc.mlockall(_MCL_CURRENT | _MCL_FUTURE | _MCL_ONFAULT) == 0)


def unlock_memory() -> None:
    """Unlock all pages, now and later."""
    ctypes.CDLL(None).munlockall()


def release_code_pages() -> None:
    """Release all pages of code; code that is called again comes back from the page cache.

    Libraries read in some 15 MiB of code to start (and ONNX Runtime to load a model), and most of
    it is never called again. Locked, it would stay in memory for good.
    """
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    try:
        lines = Path("/proc/self/maps").read_text("utf-8", "replace").splitlines()
    except OSError:
        return
    for line in lines:
        span, permissions, *_, inode = line.split(maxsplit=5)[:5]
        # Nothing is lost: code is a private mapping of a file and is never written to.
        if permissions == "r-xp" and inode != "0":
            start, end = (int(part, 16) for part in span.split("-"))
            if madvise(start, end - start, _MADV_DONTNEED_LOCKED) != 0:
                madvise(start, end - start, _MADV_DONTNEED)


def use_one_heap() -> None:
    """Let all threads allocate from one heap, and give back what is free at its end.

    glibc would make up to eight heaps for each CPU, and raise by itself, up to 64 MiB, how much
    must be free before any is given back. It must be called before there are other threads.
    """
    with contextlib.suppress(AttributeError):  # a C library that has no such settings
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES)


def raise_priority() -> None:
    """Ask the scheduler to prefer the calling thread to ordinary ones.

    Niceness alone does not cross the scheduler's session groups (sched(7), autogroup), and a
    decision that is preempted by a busy program takes 3 ms instead of 0.6. Processes and threads
    that are started later have the ordinary priority: a thread that writes a limit may reclaim
    for a long time.
    """
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, _NICE)
    with contextlib.suppress(OSError):
        policy = os.SCHED_RR | os.SCHED_RESET_ON_FORK
        os.sched_setscheduler(0, policy, os.sched_param(1))


def take_back_priority(thread_id: int | None) -> None:
    """Give a thread of this process the ordinary priority again.

    Not a lower one: a thread that never gets a CPU may hold the interpreter's lock.
    """
    if thread_id is None:  # it was never started
        return
    with contextlib.suppress(OSError):
        os.sched_setscheduler(thread_id, os.SCHED_OTHER, os.sched_param(0))
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, thread_id, 0)


def disable_collector() -> None:
    """Collect garbage now, then only on request; never examine again what is alive now."""
    gc.collect()
    gc.freeze()
    gc.disable()


OTHER_FILES: Final = 256
"""Room for the sockets, levers and other files that the process opens."""


def allow_open_files(count: int) -> int:
    """Raise the soft limit of open files for ``count`` files, as far as the hard limit allows.

    Returns:
        How many of them there is room for.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return count
    if hard != resource.RLIM_INFINITY:
        wanted = max(min(wanted, hard), soft)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return max(wanted - OTHER_FILES, 0)


def group_id(group: str, key: str) -> int:
    """Return the number of a group.

    Args:
        group: Its name or number.
        key: The key of the configuration that names it, for messages.

    Raises:
        DaemonError: If there is no such group.
    """
    if group.isascii() and group.isdigit():
        return int(group)
    try:
        return grp.getgrnam(group).gr_gid
    except (KeyError, ValueError) as error:
        raise DaemonError(
            f"There is no group {group!r} on this machine.",
            next_step=f"Correct `{key}` in the configuration, or give the number.",
        ) from error
