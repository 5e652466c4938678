"""The source of latencies that reads lines of the application from a file or FIFO.

Reading never blocks, and the work of a tick is bounded. The file may appear later. Lines that it
had before are skipped, since they say nothing about now. Rotation and truncation are followed.
"""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path
from typing import Final

from stallward.actuator.errors import SensorError
from stallward.actuator.kernel.files import ABSENT
from stallward.actuator.latency.lines.line_format import LineFormat
from stallward.actuator.latency.source import LatencyCounts
from stallward.actuator.latency.window import LatencyWindow
from stallward.agent.sample import LatencySample

__all__ = ["LineFormat", "LineSource"]

TICK_BYTES: Final = 65536
"""At most this much is read and parsed per tick."""
_LAG_BYTES: Final = 16 * TICK_BYTES
"""A backlog beyond this is skipped: old latencies must not pass for new ones."""
LINE_BYTES: Final = 4096
"""A longer line is dropped and counted as bad."""


class LineSource:
    """Follows a file of lines and keeps the latencies of the last second.

    A request counts for one second after its line was read, by the reader's own clock: of the
    application's times only differences are used.

    Args:
        path: A regular file or a FIFO; it may appear later.
        line_format: The place of the latency in a line.

    Raises:
        SensorError: If ``path`` is neither a regular file nor a FIFO.
    """

    def __init__(self, path: Path, line_format: LineFormat) -> None:
        self.path = path
        self.fault = ""
        """Why the last read gave no latencies; empty if it did."""
        self.bad_lines = 0
        """Lines that are not of the format."""
        self.failed = 0
        """Requests that failed according to their line."""
        self.skipped_bytes = 0
        """Bytes that were skipped because the writer was too fast."""
        self._format = line_format
        self._fd = -1
        self._identity = (0, 0)
        self._regular = True
        self._offset = 0
        self._partial = b""
        self._overlong = False
        self._window = LatencyWindow()
        # Lines that were written before are too old.
        self._open(at_end=True)

    def read(self, now_s: float | None = None) -> LatencySample:
        """Read the lines since the last call and return the window's latencies.

        Args:
            now_s: The time by CLOCK_MONOTONIC; read if not given.

        Raises:
            SensorError: If the file cannot be read, or is not a file any more.
        """
        now_s = time.monotonic() if now_s is None else now_s
        latencies: list[float] = []
        try:
            content = self._read_new()
        except SensorError as error:
            self.fault = str(error)
            raise
        self.fault = ""
        if content:
            self._take(content, latencies)
        if latencies:
            self._window.add_points(now_s, latencies)
        return self._window.sample(now_s)

    @property
    def counts(self) -> LatencyCounts:
        """Counts of lines and requests that gave no latency."""
        return LatencyCounts(malformed=self.bad_lines, failed=self.failed)

    def _take(self, content: bytes, latencies: list[float]) -> None:
        lines = (self._partial + content).split(b"\n")
        self._partial = lines.pop()
        if self._overlong and lines:  # the end of a line that was too long
            del lines[0]
            self._overlong = False
        if len(self._partial) > LINE_BYTES:
            self.bad_lines += not self._overlong
            self._partial, self._overlong = b"", True
        for line in lines:
            if not line.strip():
                continue
            if len(line) > LINE_BYTES:  # a pattern's time may grow with the square of the length
                self.bad_lines += 1
                continue
            try:
                value = self._format.latency_ms(line.decode("utf-8", "replace"))
            except ValueError:
                self.bad_lines += 1
                continue
            if value is None:
                self.failed += 1
            else:
                latencies.append(value)

    def _read_new(self) -> bytes:
        """Read at most :data:`TICK_BYTES` of new content."""
        try:
            if self._fd < 0 and not self._open(at_end=False):
                return b""
            if self._regular:
                self._skip_backlog()
            content = os.read(self._fd, TICK_BYTES)
        except BlockingIOError:
            return b""
        except OSError as error:
            raise SensorError(
                self.path,
                f"cannot read ({os.strerror(error.errno or 0)})",
                number=error.errno or 0,
            ) from error
        self._offset += len(content)
        if not content:
            self._follow()
        return content

    def _skip_backlog(self) -> None:
        size = os.fstat(self._fd).st_size
        if size < self._offset:  # the file was truncated: its content is new
            self._offset = os.lseek(self._fd, 0, os.SEEK_SET)
            self._partial = b""
        elif size - self._offset > _LAG_BYTES:
            start = size - TICK_BYTES
            self.skipped_bytes += start - self._offset
            self._offset = os.lseek(self._fd, start, os.SEEK_SET)
            self._partial, self._overlong = b"", True  # in the middle of some line

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
            raise SensorError(
                self.path,
                f"cannot open ({os.strerror(error.errno or 0)})",
                number=error.errno or 0,
            ) from error
        status = os.fstat(fd)
        self._regular = stat.S_ISREG(status.st_mode)
        if not self._regular and not stat.S_ISFIFO(status.st_mode):
            os.close(fd)
            raise SensorError(
                self.path,
                "neither a file nor a FIFO",
                next_step="Give the file or FIFO to which the application writes its requests.",
            )
        self._fd, self._identity = fd, (status.st_dev, status.st_ino)
        self._partial, self._overlong, self._offset = b"", False, 0
        if at_end and self._regular:
            self._offset = os.lseek(fd, 0, os.SEEK_END)
        return True

    def close(self) -> None:
        """Close the file; a later read opens it again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
