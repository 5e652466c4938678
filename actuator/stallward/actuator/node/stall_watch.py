"""Detects within milliseconds, between two ticks, that the protected application stalls.

One PSI file is kept open and read some 26 to 40 times a second (2 us for a read, and a wake-up).
With CAP_SYS_RESOURCE, the kernel also wakes the loop by a PSI trigger of half a second
(Documentation/accounting/psi.rst). Other processes may only use windows of 2 s and its multiples,
which are too slow.

A group that is made anew has new files, and the old ones do not change any more. The watch then
changes to the new files.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from stallward.actuator.kernel.cgroups import Cgroup
from stallward.actuator.kernel.memory.pressure import why_no_psi
from stallward.actuator.kernel.target import AnyTarget, is_unbound

STALL_US: Final = 500
"""How much the stall must grow between two reads to call for a tick at once."""
TRIGGER_STALL_US: Final = 5_000
TRIGGER_WINDOW_US: Final = 500_000
_REOPEN_S: Final = 1.0
"""How often to look for a file that has vanished."""
_CONTENT_BYTES: Final = 80
"""Enough for the first line, which ends with the total."""
_TOTAL: Final = b"total="


def stall_file(protected: AnyTarget, proc: Path) -> Path | None:
    """The PSI file of the protected application; of the node, if it has none of its own.

    Args:
        protected: The application; ``None`` is returned while it is not there.
        proc: The /proc directory.
    """
    if is_unbound(protected):
        return None
    folder = protected.unified_dir if isinstance(protected, Cgroup) else None
    path = None if folder is None else folder / "memory.pressure"
    if path is None or why_no_psi(path) is not None:
        return proc / "pressure" / "memory"
    return path


class StallWatch:
    """Watches one PSI file.

    Args:
        path: The file, e.g. memory.pressure of the protected group; ``None`` for no file.
        trigger: Whether to ask the kernel for a trigger, too.
    """

    def __init__(self, path: Path | None, *, trigger: bool = True) -> None:
        self.missing = ""
        """Why no stall can be detected; empty if it can."""
        self.trigger_missing = "not asked for"
        """Why the kernel does not wake the loop by a trigger; empty if it does."""
        self._fd = self.trigger_fd = -1
        self.trigger_number = 0
        """How often ``trigger_fd`` has got another value, or the same for another file."""
        self._last = b""
        self._total_us = 0
        self._path, self._trigger = path, trigger
        self._reopen_at_s = float("-inf")
        if path is None:
            self.missing = "no PSI file"
        else:
            self._open(path)

    def _open(self, path: Path) -> None:
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            os.pread(self._fd, 1, 0)
        except OSError as error:
            self.detach()
            no_psi = why_no_psi(path)
            self.missing = f"{path}: {os.strerror(error.errno or 0)}"
            if no_psi is not None and no_psi.off:
                self.missing = f"{no_psi.cause}. {no_psi.next_step}"
            return
        self.missing = ""
        self.has_stalled()
        if self._trigger and self._fd >= 0:
            self._arm(path)

    def reopen(self, now_s: float) -> None:
        """Look for a file that has vanished, at most once a second; call at every tick.

        Args:
            now_s: CLOCK_MONOTONIC.
        """
        if self._fd < 0 and self._path is not None and now_s >= self._reopen_at_s:
            self._reopen_at_s = now_s + _REOPEN_S
            self._open(self._path)

    def _arm(self, path: Path) -> None:
        try:
            fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            self.trigger_missing = f"{path}: {os.strerror(error.errno or 0)}"
            return
        try:
            os.write(fd, b"some %d %d\0" % (TRIGGER_STALL_US, TRIGGER_WINDOW_US))
        except OSError as error:
            os.close(fd)
            self.trigger_missing = (
                f"a window of {TRIGGER_WINDOW_US / 1e6:g} s is refused "
                f"({os.strerror(error.errno or 0)}): needs CAP_SYS_RESOURCE"
            )
            return
        self.trigger_fd, self.trigger_missing = fd, ""
        self.trigger_number += 1

    def has_stalled(self) -> bool:
        """Read the file; return whether the application has stalled since the last call."""
        if self._fd < 0:
            return False
        try:
            content = os.pread(self._fd, _CONTENT_BYTES, 0)
        except OSError:  # the group is gone, as a tick will find
            self.detach()
            return False
        if content == self._last:
            return False
        self._last = content
        start = content.find(_TOTAL) + len(_TOTAL)
        digits = content[start:].split(b"\n", 1)[0]
        if start < len(_TOTAL) or not digits.isdigit():
            return False
        before, self._total_us = self._total_us, int(digits)
        return self._total_us - before >= STALL_US

    def close(self) -> None:
        """Close the files for good."""
        self.detach()
        self._path = None

    def detach(self) -> None:
        """Close the files of a group that is gone; :meth:`reopen` looks for a new one."""
        for fd in (self._fd, self.trigger_fd):
            if fd >= 0:
                with contextlib.suppress(OSError):
                    os.close(fd)
        self._fd = self.trigger_fd = -1
        self.trigger_number += 1


class StallWatches:
    """Watches the PSI files of all protected applications.

    Of several only the first may have a trigger of the kernel; the others are looked at.

    Args:
        paths: The files; none while no application is there.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._watches: tuple[StallWatch, ...] = ()
        self._moves = 0
        self.move(paths)

    def move(self, paths: Sequence[Path]) -> None:
        """Watch other files from now on."""
        self.close()
        self._watches = tuple(
            StallWatch(path, trigger=number == 0) for number, path in enumerate(paths)
        )
        self._moves += 1

    @property
    def missing(self) -> str:
        """Why no stall can be detected; empty if it can."""
        return self._watches[0].missing if self._watches else "no PSI file"

    @property
    def trigger_fd(self) -> int:
        """The descriptor of the trigger; -1 if there is none."""
        return self._watches[0].trigger_fd if self._watches else -1

    @property
    def trigger_number(self) -> tuple[int, int]:
        """Another value whenever ``trigger_fd`` is another trigger."""
        return self._moves, self._watches[0].trigger_number if self._watches else 0

    def has_stalled(self) -> bool:
        """Read all files; return whether any application has stalled since the last call."""
        stalled = [watch.has_stalled() for watch in self._watches]  # each must be read
        return any(stalled)

    def reopen(self, now_s: float) -> None:
        """Look for files that have vanished; see :meth:`StallWatch.reopen`."""
        for watch in self._watches:
            watch.reopen(now_s)

    def detach(self) -> None:
        """Close the files; :meth:`reopen` looks for them again."""
        for watch in self._watches:
            watch.detach()

    def close(self) -> None:
        """Close the files for good."""
        for watch in self._watches:
            watch.close()
