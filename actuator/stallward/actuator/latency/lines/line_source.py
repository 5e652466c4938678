"""The source of latencies that reads lines of the application from a file or FIFO."""

from __future__ import annotations

import time
from pathlib import Path

from stallward.actuator.errors import SensorError
from stallward.actuator.latency.counts import LatencyCounts
from stallward.actuator.latency.lines.line_format import LineFormat
from stallward.actuator.latency.lines.line_reader import LineReader
from stallward.actuator.latency.lines.log_file import LogFile
from stallward.actuator.latency.window import LatencyWindow
from stallward.agent.sample import LatencySample


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
        self.fault = ""
        """Why the last read gave no latencies; empty if it did."""
        self._file = LogFile(path)
        self._reader = LineReader(line_format)
        self._window = LatencyWindow()

    def read(self, now_s: float | None = None) -> LatencySample:
        """Read the lines since the last call and return the window's latencies.

        Args:
            now_s: The time by CLOCK_MONOTONIC; read if not given.

        Raises:
            SensorError: If the file cannot be read, or is not a file any more.
        """
        now_s = time.monotonic() if now_s is None else now_s
        try:
            if not self._reader.is_behind:
                self._reader.split(self._file.read())
        except SensorError as error:
            self.fault = str(error)
            raise
        self.fault = ""
        if self._reader.is_behind:
            self._window.add_points(now_s, self._reader.take_latencies())
        return self._window.sample(now_s)

    @property
    def counts(self) -> LatencyCounts:
        """What became of the lines since the source was opened."""
        self._reader.tally.lost = self._file.missed
        return self._reader.tally.counts()

    def close(self) -> None:
        """Close the file; a later read opens it again."""
        self._file.close()
