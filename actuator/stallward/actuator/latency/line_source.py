"""The protected application's latencies, from a file or FIFO of lines that it writes.

Reading never blocks and the work of a tick is bounded. A file that is not there yet is waited
for; what it held before is skipped, since it says nothing about now; rotation and truncation
are followed.
"""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path
from typing import Final

from stallward.actuator.errors import SensorError
from stallward.actuator.kernel.files import ABSENT
from stallward.actuator.latency.line_format import LineFormat
from stallward.actuator.latency.source import LatencyCounts
from stallward.actuator.latency.window import LatencyWindow
from stallward.agent.sample import LatencySample

__all__ = ["LineFormat", "LineSource"]

TICK_BYTES: Final = 65536
"""At most this much is read and parsed per tick."""
_LAG_BYTES: Final = 16 * TICK_BYTES
"""A backlog beyond this is skipped: old latencies must not pass for new ones."""
LINE_BYTES: Final = 4096
"""A longer line is not one: it is dropped and counted as bad."""


class LineSource:
    """Tails lines and keeps the latencies of the last second.

    A request counts in the second after its line was seen, by the reader's own clock: the
    application's times are only subtracted from each other.

    Args:
        path: A regular file or a FIFO; it may appear later.
        line_format: Where the latency is in a line.

    Raises:
        SensorError: If ``path`` is something that cannot be tailed.
    """

    def __init__(self, path: Path, line_format: LineFormat) -> None:
        self.path = path
        self.fault = ""
        """Why the last read gave nothing; empty if it did."""
        self.bad_lines = 0
        """Lines that are not of the format."""
        self.failed = 0
        """Requests that their line calls failed."""
        self.skipped_bytes = 0
        """What was not read because the writer was too fast."""
        self._format = line_format
        self._fd = -1
        self._identity = (0, 0)
        self._regular = True
        self._offset = 0
        self._partial = b""
        self._overlong = False
        self._window = LatencyWindow()
        # Lines written before we came are history.
        self._open(at_end=True)

    def read(self, now_s: float | None = None) -> LatencySample:
        """Take in what was written since the last call.

        Args:
            now_s: CLOCK_MONOTONIC; read if not given.

        Raises:
            SensorError: If the file cannot be read, or is no file any more.
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
        """What did not become a latency."""
        return LatencyCounts(malformed=self.bad_lines, failed=self.failed)

    def _take(self, content: bytes, latencies: list[float]) -> None:
        lines = (self._partial + content).split(b"\n")
        self._partial = lines.pop()
        if self._overlong and lines:  # the end of a line that was given up
            del lines[0]
            self._overlong = False
        if len(self._partial) > LINE_BYTES:
            self.bad_lines += not self._overlong
            self._partial, self._overlong = b"", True
        for line in lines:
            if not line.strip():
                continue
            if len(line) > LINE_BYTES:  # a pattern may take a time that is its square
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
        """At most :data:`TICK_BYTES` that were not seen yet."""
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
        if size < self._offset:  # truncated: what is there now is new
            self._offset = os.lseek(self._fd, 0, os.SEEK_SET)
            self._partial = b""
        elif size - self._offset > _LAG_BYTES:
            start = size - TICK_BYTES
            self.skipped_bytes += start - self._offset
            self._offset = os.lseek(self._fd, start, os.SEEK_SET)
            self._partial, self._overlong = b"", True  # in the middle of some line

    def _follow(self) -> None:
        """At the end: if another file has the name now, go on with that one."""
        try:
            found = os.stat(self.path)  # noqa: PTH116 - a Path object a tick buys nothing
        except OSError as error:
            if error.errno in ABSENT:
                return
            raise
        if (found.st_dev, found.st_ino) != self._identity:
            self.close()
            self._open(at_end=False)

    def _open(self, *, at_end: bool) -> bool:
        """Open without blocking; whether something was there."""
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
        found = os.fstat(fd)
        self._regular = stat.S_ISREG(found.st_mode)
        if not self._regular and not stat.S_ISFIFO(found.st_mode):
            os.close(fd)
            raise SensorError(
                self.path,
                "neither a file nor a FIFO",
                next_step="Give the file or FIFO to which the application writes its requests.",
            )
        self._fd, self._identity = fd, (found.st_dev, found.st_ino)
        self._partial, self._overlong, self._offset = b"", False, 0
        if at_end and self._regular:
            self._offset = os.lseek(fd, 0, os.SEEK_END)
        return True

    def close(self) -> None:
        """Close the file; a later read opens it again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
