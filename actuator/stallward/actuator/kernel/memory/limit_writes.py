"""Writes of memory limits: as the kernel rounds them, to be interrupted, and watched by another."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import select
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from stallward.actuator.errors import KernelFileError
from stallward.actuator.kernel.files import failure, open_to_write, read_text

# ---------- Tells a memory setting that the kernel has rounded from another one
# The kernel keeps memory limits in whole pages, so a file seldom reads as it was written.

LARGEST_PAGE_BYTES: Final = 65536
"""The largest page size in use."""


def is_rounded(found: str, asked_bytes: int) -> bool:
    """Whether ``found``, the text of a file, is what the kernel makes of ``asked_bytes``."""
    return found.isdigit() and abs(int(found) - asked_bytes) < LARGEST_PAGE_BYTES


# ---------- Writes to kernel files that another thread can interrupt
# Lowering a memory limit reclaims before the write returns, and goes on as long as reclaim makes any
# progress. Where many processes take back their pages as fast as they are reclaimed, that may last
# for minutes (measured: more than eight, with 32 of them). The kernel gives up when a signal is
# pending, so a thread that writes a limit is sent one.

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


# ---------- Writes to a limit that notice what another program writes to the same file meanwhile
# On cgroup v1 a write of a lower limit reclaims first and takes effect at its end, 0.1 s later or
# more. A limit that another program has set meanwhile, such as the kubelet that resizes a pod, would
# be overwritten, and nothing would tell. So a thread waits for writes (inotify), and reads at once
# what was written. A value that is overwritten within the fraction of a millisecond that this takes
# stays unseen.

_MODIFIED: Final = 0x2
"""IN_MODIFY of inotify: a write to the file has succeeded."""
_EVENTS_BYTES: Final = 4096


def write_watched(path: Path, value: str, ours: Callable[[str], bool]) -> str | None:
    """Write ``value`` as :func:`write_interruptibly` does, and watch the file meanwhile.

    Where there is no thread or no inotify left, it writes without watching.

    Args:
        path: The file.
        value: The value to write.
        ours: Says whether a value is what the kernel makes of the one that is written.

    Returns:
        The last value that another program has written meanwhile; ``None`` if none was seen.

    Raises:
        KernelFileError: With the errno in ``number``; EINTR if the write was interrupted.
    """
    seen: list[str] = []
    before: str | None = None
    with contextlib.ExitStack() as watching:
        with contextlib.suppress(OSError, RuntimeError, KernelFileError):
            before = read_text(path)
            watching.enter_context(_watched(path, seen))
        write_interruptibly(path, value)
    # That the file is opened for our write is an event, too, at which it has its old value.
    return next((one for one in reversed(seen) if one != before and not ours(one)), None)


@contextlib.contextmanager
def _watched(path: Path, seen: list[str]) -> Iterator[None]:
    """Add each value that is written to ``path`` to ``seen``."""
    with contextlib.ExitStack() as opened:
        events = libc().inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if events < 0:
            raise failure(path, OSError(ctypes.get_errno(), ""), "watch")
        opened.callback(os.close, events)
        if libc().inotify_add_watch(events, os.fsencode(path), _MODIFIED) < 0:
            raise failure(path, OSError(ctypes.get_errno(), ""), "watch")
        end_read, end_write = os.pipe2(os.O_CLOEXEC)
        opened.callback(os.close, end_read)
        with contextlib.closing(os.fdopen(end_write, "wb", buffering=0)) as end:
            thread = threading.Thread(
                target=_note, args=(path, events, end_read, seen), name="limit-watch", daemon=True
            )
            thread.start()
            try:
                yield
            finally:
                end.close()
                thread.join()


def _note(path: Path, events: int, end: int, seen: list[str]) -> None:
    """Read the file after each write to it, until the other end of ``end`` is closed."""
    poll = select.poll()
    poll.register(events, select.POLLIN)
    poll.register(end, select.POLLIN)
    while True:
        ready = {fd for fd, _ in poll.poll()}
        if events not in ready:
            return
        os.read(events, _EVENTS_BYTES)
        with contextlib.suppress(KernelFileError):
            if value := read_text(path):  # else a plain file was emptied by the same write
                seen.append(value)
