"""Follows a file or FIFO that a program writes: new content, rotation, truncation, backlog.

Reading never blocks, and the work of a tick is bounded. The file may appear later.
"""

from __future__ import annotations

import os
import stat
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

from stallward.actuator.errors import SensorError
from stallward.actuator.kernel.files import ABSENT

TICK_BYTES: Final = 65536
"""At most this much is read per tick."""
_LAG_BYTES: Final = 16 * TICK_BYTES
"""A backlog beyond this is skipped: old latencies must not pass for new ones."""
_FINGERPRINT_BYTES: Final = 256
"""How much of what was read last is compared with the file before more of it is read."""


class Start(Enum):
    """Where a piece of a file starts."""

    CONTINUES = 1
    """Where the piece before it ended."""
    AT_LINE = 2
    """At the start of a line; what was before is of no use."""
    IN_LINE = 3
    """Perhaps within a line; what was before is of no use."""


class Piece(NamedTuple):
    """New content of a file."""

    content: bytes
    start: Start


class LogFile:
    """A file that is read as it grows.

    A log that is truncated in place may have grown past the last place that was read before
    anybody looks. Then neither its inode nor its size tells; so the bytes that were read last are
    read again with the new ones, and compared.

    Args:
        path: A regular file or a FIFO; it may appear later. What is in it now is skipped.

    Raises:
        SensorError: If ``path`` is neither a regular file nor a FIFO.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.skipped_bytes = 0
        """Bytes that were skipped because the writer was too fast."""
        self.missed = 0
        """Times that some of the file was missed: it was truncated, or skipped in part."""
        self._fd = -1
        self._identity = (0, 0)
        self._regular = True
        self._offset = 0
        self._last = b""
        self._start = Start.AT_LINE
        self._open(at_end=True)  # lines that were written before are too old

    def read(self) -> Piece:
        """Read at most :data:`TICK_BYTES` of new content.

        After a failure, such as ESTALE of NFS, the file of that name is opened again.

        Raises:
            SensorError: If the file cannot be read, or is not a file any more.
        """
        try:
            if self._fd < 0 and not self._open(at_end=False):
                return Piece(b"", self._start)
            content = self._read_regular() if self._regular else os.read(self._fd, TICK_BYTES)
            if not content:
                self._follow()
        except BlockingIOError:
            return Piece(b"", self._start)
        except OSError as error:
            self.close()
            raise self._failure("read", error) from error
        piece = Piece(content, self._start)
        if content:
            self._start = Start.CONTINUES
        return piece

    def _read_regular(self) -> bytes:
        size = os.fstat(self._fd).st_size
        if size < self._offset:
            self._rewind()
        if size - self._offset > _LAG_BYTES:
            self._skip_to(size - TICK_BYTES)
        content = self._read_on()
        if content is None:  # other content is where ours was
            self._rewind()
            if size > _LAG_BYTES:
                self._skip_to(size - TICK_BYTES)
            content = self._read_on() or b""
        self._offset += len(content)
        self._last = (self._last + content)[-_FINGERPRINT_BYTES:]
        return content

    def _read_on(self) -> bytes | None:
        """Read what follows; ``None`` if what was read last is not in front of it any more."""
        known = len(self._last)
        both = os.pread(self._fd, known + TICK_BYTES, self._offset - known)
        return both[known:] if both[:known] == self._last else None

    def _rewind(self) -> None:
        """Start again with a file that was truncated: all of its content is new."""
        self.missed += 1
        self._offset, self._last, self._start = 0, b"", Start.AT_LINE

    def _skip_to(self, offset: int) -> None:
        self.missed += 1
        self.skipped_bytes += offset - self._offset
        self._offset, self._last, self._start = offset, b"", Start.IN_LINE

    def _follow(self) -> None:
        """Switch to another file if that has the name now; called at the end of this one."""
        try:
            status = os.stat(self.path)  # noqa: PTH116 - a Path object a tick buys nothing
        except OSError as error:
            if error.errno in ABSENT:
                return
            raise
        if (status.st_dev, status.st_ino) != self._identity:
            self.close()
            self._open(at_end=False)

    def _open(self, *, at_end: bool) -> bool:
        """Open the file without blocking; returns whether it exists."""
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
        try:
            fd = os.open(self.path, flags)
        except OSError as error:
            if error.errno in ABSENT:
                return False
            raise self._failure("open", error) from error
        status = os.fstat(fd)
        self._regular = stat.S_ISREG(status.st_mode)
        if not self._regular and not stat.S_ISFIFO(status.st_mode):
            os.close(fd)
            raise SensorError(
                self.path,
                "neither a file nor a FIFO",
                next_step="Give the file or FIFO to which the application writes its requests.",
            )
        before, self._identity = self._identity, (status.st_dev, status.st_ino)
        self._fd = fd
        if self._identity == before and self._regular:
            return True  # reading failed, and goes on where it was
        self._offset, self._last, self._start = 0, b"", Start.AT_LINE
        if at_end and self._regular and status.st_size:
            self._offset = status.st_size
            known = min(status.st_size, _FINGERPRINT_BYTES)
            self._last = os.pread(fd, known, status.st_size - known)
            if not self._last.endswith(b"\n"):
                self._start = Start.IN_LINE
        return True

    def _failure(self, action: str, error: OSError) -> SensorError:
        cause = f"cannot {action} ({os.strerror(error.errno or 0)})"
        return SensorError(self.path, cause, number=error.errno or 0)

    def close(self) -> None:
        """Close the file; a later read opens it again, and continues where this one was."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
