"""What held entries are undone by, kept open, so that undoing them needs no new descriptor.

A process or a machine may have no descriptor left (EMFILE, ENFILE) or no memory to open a file
just when a pause must end. A file that was opened when its entry was noted can be written all the
same, also where its file system was remounted read-only since. The file is opened anew only if
the kept one fails: its group may have been removed and made again under the same name.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from stallward.actuator.errors import JournalError, KernelFileError
from stallward.actuator.journal.entries import (
    FileValue,
    Frozen,
    JournalEntry,
    KeyedValue,
    Noted,
    Stopped,
)
from stallward.actuator.kernel.files import overwritten, read_text, write_text
from stallward.actuator.kernel.process_table import open_process, send_signal, signal_process

_NO_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Errors of opening that say nothing about the file: it may be there, and need undoing later."""
_MOST_BYTES: Final = 65536


@dataclass(slots=True)
class _Kept:
    """One open descriptor. A thread that the kernel blocks in a write may outlast its entries."""

    fd: int
    entries: set[JournalEntry] = field(default_factory=set)
    users: int = 0


class KeptFiles:
    """Descriptors for the entries that a process may have to undo.

    Without any entry it is only the way to write, read and signal.
    """

    def __init__(self) -> None:
        self._kept: dict[Path | Stopped, _Kept] = {}
        self._lock = threading.Lock()

    def keep(self, entry: JournalEntry, proc: Path) -> None:
        """Open what ``entry`` is undone by, until :meth:`drop`.

        A target that is gone, or that cannot be written anyway, is no error here.

        Raises:
            JournalError: If no descriptor is left. Then the change must not be made.
        """
        key = _key(entry)
        if key is None:
            return
        with self._lock:
            kept = self._kept.get(key)
            if kept is None:
                fd = _open(key, proc)
                if fd is None:
                    return
                kept = self._kept[key] = _Kept(fd)
            kept.entries.add(entry)

    def drop(self, entry: JournalEntry) -> None:
        """Close what was kept for ``entry``, unless another entry needs it."""
        key = _key(entry)
        with self._lock:
            kept = self._kept.get(key) if key is not None else None
            if kept is None:
                return
            kept.entries.discard(entry)
            if not kept.entries:
                del self._kept[key]  # type: ignore[arg-type]
                if not kept.users:
                    os.close(kept.fd)

    def close(self) -> None:
        """Close everything that no thread uses any more."""
        with self._lock:
            for kept in self._kept.values():
                kept.entries.clear()
                if not kept.users:
                    os.close(kept.fd)
            self._kept.clear()

    def write(self, path: Path, value: str) -> None:
        """Write ``value`` to a file, in one write.

        Raises:
            KernelFileError: With the errno in ``number``, also if the file is absent.
        """
        with self._use(path) as fd:
            if fd is not None and overwritten(fd, value):
                return
        write_text(path, value)

    def read(self, path: Path) -> str | None:
        """Return the content of a file without surrounding white space; ``None`` if it is absent.

        Raises:
            KernelFileError: If the file is there but cannot be read.
        """
        with self._use(path) as fd:
            if fd is not None:
                with contextlib.suppress(OSError):
                    return os.pread(fd, _MOST_BYTES, 0).decode("utf-8", "replace").strip()
        return read_text(path)

    def signal(self, entry: Stopped, number: signal.Signals, proc: Path) -> None:
        """Signal the process of ``entry``; do nothing if it has ended.

        Raises:
            KernelFileError: If the signal is refused, or no descriptor is left to send it by.
        """
        with self._use(entry) as fd:
            if fd is None:
                send_signal(proc, entry.pid, entry.start_time_ticks, number)
            else:
                signal_process(fd, proc, entry.pid, number)

    @contextlib.contextmanager
    def _use(self, key: Path | Stopped) -> Iterator[int | None]:
        """Keep a descriptor from being closed, so that its number is not used for another file."""
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None:
                kept.users += 1
        try:
            yield None if kept is None else kept.fd
        finally:
            if kept is not None:
                with self._lock:
                    kept.users -= 1
                    if not kept.users and not kept.entries:
                        os.close(kept.fd)


def _key(entry: JournalEntry) -> Path | Stopped | None:
    inner = entry.entry if isinstance(entry, Noted) else entry
    match inner:
        case FileValue(path=path) | KeyedValue(path=path) | Frozen(path=path):
            return path
        case Stopped():
            return inner
    return None


def _open(key: Path | Stopped, proc: Path) -> int | None:
    """Open a target; ``None`` if it is gone or cannot be opened for a reason that will last."""
    try:
        if isinstance(key, Stopped):
            return open_process(proc, key.pid, key.start_time_ticks)
        return os.open(key, os.O_RDWR | os.O_CLOEXEC)
    except (OSError, KernelFileError) as error:
        number = error.number if isinstance(error, KernelFileError) else error.errno
        if number not in _NO_ROOM:
            return None
        what = f"process {key.pid}" if isinstance(key, Stopped) else str(key)
        raise JournalError(
            f"No descriptor is left to undo a change of {what} by ({os.strerror(number or 0)}), "
            "so it is not changed.",
            next_step="Raise the limit of open files (LimitNOFILE, fs.file-max).",
        ) from error
