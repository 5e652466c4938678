"""Writes to a limit that notice what another program writes to the same file meanwhile.

On cgroup v1 a write of a lower limit reclaims first and takes effect at its end, 0.1 s later or
more. A limit that another program has set meanwhile, such as the kubelet that resizes a pod, would
be overwritten, and nothing would tell. So a thread waits for writes (inotify), and reads at once
what was written. A value that is overwritten within the fraction of a millisecond that this takes
stays unseen.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from stallward.actuator.errors import KernelFileError
from stallward.actuator.kernel.files import failure, read_text
from stallward.actuator.kernel.memory.interruptible import libc, write_interruptibly

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
