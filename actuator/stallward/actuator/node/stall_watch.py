"""Noticing within milliseconds that the protected application stalls, between two ticks.

One PSI file is kept open and read some 26 to 40 times a second (2 us a read, and a wake-up).
Where the kernel allows it, it also wakes the loop itself: a PSI trigger of half a second
(Documentation/accounting/psi.rst) needs CAP_SYS_RESOURCE; other processes may only use windows
of 2 s and its multiples, which are too slow to be of use here.

A group that is made anew has files of its own: those of the old one say nothing any more, so the
watch goes over to the new ones.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

STALL_US: Final = 500
"""Growth of the stall between two looks that calls for a tick now."""
TRIGGER_STALL_US: Final = 5_000
TRIGGER_WINDOW_US: Final = 500_000
_REOPEN_S: Final = 1.0
"""How often a file that went away is looked for."""
_CONTENT_BYTES: Final = 80
"""The first line, of which the last number counts."""
_TOTAL: Final = b"total="


class StallWatch:
    """Looks at one PSI file.

    Args:
        path: E.g. memory.pressure of the protected group; ``None`` to see nothing.
        trigger: Whether to ask the kernel for a trigger too.
    """

    def __init__(self, path: Path | None, *, trigger: bool = True) -> None:
        self.missing = ""
        """Why nothing can be seen; empty if something can."""
        self.trigger_missing = "not asked for"
        """Why the kernel does not wake the loop itself; empty if it does."""
        self._fd = self.trigger_fd = -1
        self._last = b""
        self._total_us = 0
        self._path, self._trigger = path, trigger
        self._again_s = float("-inf")
        if path is None:
            self.missing = "no PSI file"
        else:
            self._open(path)

    def _open(self, path: Path) -> None:
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            self.missing = f"{path}: {os.strerror(error.errno or 0)}"
            return
        self.missing = ""
        self.look()
        if self._trigger and self._fd >= 0:
            self._arm(path)

    def reopen(self, now_s: float) -> None:
        """Look for the file if it went away; seldom, so that it may be asked at every tick.

        Args:
            now_s: CLOCK_MONOTONIC.
        """
        if self._fd < 0 and self._path is not None and now_s >= self._again_s:
            self._again_s = now_s + _REOPEN_S
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

    def look(self) -> bool:
        """Whether the application has stalled since the last look."""
        if self._fd < 0:
            return False
        try:
            content = os.pread(self._fd, _CONTENT_BYTES, 0)
        except OSError:  # the group is gone; a tick will find out
            self.lose()
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
        """Close the files for good; nothing is seen any more."""
        self.lose()
        self._path = None

    def lose(self) -> None:
        """Close the files, whose group is gone; :meth:`reopen` looks for another."""
        for fd in (self._fd, self.trigger_fd):
            if fd >= 0:
                with contextlib.suppress(OSError):
                    os.close(fd)
        self._fd = self.trigger_fd = -1
