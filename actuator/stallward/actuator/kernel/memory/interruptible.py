"""Writes to kernel files that another thread can interrupt.

Lowering a memory limit reclaims before the write returns, and goes on as long as reclaim makes any
progress. Where many processes take back their pages as fast as they are reclaimed, that may last
for minutes (measured: more than eight, with 32 of them). The kernel gives up when a signal is
pending, so a thread that writes a limit is sent one.
"""

from __future__ import annotations

import ctypes
import functools
import os
import signal
from pathlib import Path
from typing import Any, Final

from stallward.actuator.kernel.files import failure, open_to_write

INTERRUPT: Final = signal.SIGUSR1
"""The signal that interrupts. Without :func:`allow_interrupts` it would end the process."""


def _ignore(_number: int, _frame: object) -> None:
    """Do nothing: the signal has interrupted the write by being delivered."""


def allow_interrupts() -> None:
    """Let :func:`interrupt` interrupt writes from now on; call it in the main thread."""
    signal.signal(INTERRUPT, _ignore)


def interrupt(thread_id: int) -> None:
    """Interrupt a write that the thread makes; do nothing where that is not allowed.

    Args:
        thread_id: ``threading.get_ident()`` of a thread of this process that is alive.
    """
    if signal.getsignal(INTERRUPT) is _ignore:
        signal.pthread_kill(thread_id, INTERRUPT)


@functools.cache
def libc() -> Any:
    """The C library, whose calls Python itself does not repeat."""
    return ctypes.CDLL(None, use_errno=True)


def write_interruptibly(path: Path, value: str) -> None:
    """Write ``value`` to a file that must exist already, in one write.

    Python itself would repeat a write that was interrupted (PEP 475).

    Raises:
        KernelFileError: With the errno in ``number``; EINTR if the write was interrupted.
    """
    data = value.encode()
    fd = open_to_write(path, value)
    try:
        if libc().write(fd, data, len(data)) < 0:
            raise failure(path, OSError(ctypes.get_errno(), ""), f"write {value!r}")
    finally:
        os.close(fd)
