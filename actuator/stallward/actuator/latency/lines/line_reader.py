"""Turns the content of a log into latencies, within the processor time that a tick may take."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Final, TypeVar

from stallward.actuator.latency.counts import Tally
from stallward.actuator.latency.lines.line_format import TOO_LONG, LineFormat
from stallward.actuator.latency.lines.log_file import Piece, Start

# ---------- Ends searches of a regular expression that take too long
# A user writes the pattern, but whoever can put text into the log chooses the lines, and some
# patterns take minutes for a line that was made for them. Python's engine looks for signals while
# it searches, and nothing else can end it. So a timer of this process's own processor time sends
# one, and its handler raises.

T = TypeVar("T")
_TIMER: Final = signal.ITIMER_VIRTUAL
_SIGNAL: Final = signal.SIGVTALRM


class SearchTooLongError(Exception):
    """Raised when a search was ended."""


class SearchBudget:
    """Runs functions that search, and ends them when they take too long.

    Only Python's main thread can do that; in other threads a search takes as long as it takes.

    Args:
        most_s: The processor time that one run may take.
    """

    def __init__(self, most_s: float) -> None:
        self._most_s = most_s
        self._running = False
        self._until_s = 0.0
        self._works = threading.current_thread() is threading.main_thread()
        if self._works:
            signal.signal(_SIGNAL, self._end)

    def run(self, function: Callable[[], T]) -> T:
        """Return what ``function`` returns.

        Raises:
            SearchTooLongError: If it was ended; it must be one that may be ended at any point.
        """
        if not self._works or threading.current_thread() is not threading.main_thread():
            return function()
        # The signal shall not wake a select, which waits for signals that end the process.
        wake_fd = signal.set_wakeup_fd(-1)
        try:
            self._until_s = time.thread_time() + self._most_s
            self._running = True
            signal.setitimer(_TIMER, self._most_s)
            result = function()
            self._running = False
            return result
        finally:
            self._running = False
            signal.setitimer(_TIMER, 0.0)
            signal.set_wakeup_fd(wake_fd, warn_on_full_buffer=False)

    def _end(self, number: int, frame: FrameType | None) -> None:
        if not self._running:
            return
        left_s = self._until_s - time.thread_time()
        if left_s > 0.0:  # other threads spent the rest
            signal.setitimer(_TIMER, left_s)
            return
        self._running = False
        raise SearchTooLongError


TICK_CPU_S: Final = 0.01
"""The processor time that a tick takes for lines; those that are left wait for the next tick."""
_SEARCH_CPU_S: Final = 0.025
"""The same after which the search of a single line is ended."""
_LINES_PER_LOOK: Final = 32
"""How many lines without a pattern are taken in between two looks at the clock."""


class LineReader:
    """Splits content into lines and reads the latencies in them.

    Args:
        line_format: The place of the latency in a line.
    """

    def __init__(self, line_format: LineFormat) -> None:
        self.tally = Tally()
        """What became of the lines."""
        self._format = line_format
        self._searches = SearchBudget(_SEARCH_CPU_S) if line_format.searches else None
        self._partial = b""
        self._discards = False
        """Whether the rest of the present line is discarded."""
        self._waiting: list[bytes] = []
        """Lines that are not taken in yet, the next one last."""
        self._present = b""
        """The line that is being taken in."""
        self._latencies: list[float] = []

    @property
    def is_behind(self) -> bool:
        """Whether there are lines that are not taken in yet."""
        return bool(self._waiting)

    def split(self, piece: Piece) -> None:
        """Split new content into whole lines, and keep what is left of it."""
        if piece.start is not Start.CONTINUES:
            self._partial, self._discards = b"", piece.start is Start.IN_LINE
        content = piece.content
        if not (self._partial or self._discards):
            # Where a writer goes on after its file was truncated, it leaves a hole of NULs.
            content = content.lstrip(b"\0")
        if not content:
            return
        # A program that rewrites its line on a terminal ends it with a carriage return alone.
        lines = (self._partial + content).replace(b"\r", b"\n").split(b"\n")
        self._partial = lines.pop()
        if self._discards and lines:
            del lines[0]
            self._discards = False
        if len(self._partial) > self._format.line_bytes:
            if not self._discards:
                self.tally.note_malformed(self._partial, why=TOO_LONG)
            self._partial, self._discards = b"", True
        lines.reverse()
        self._waiting = lines

    def take_latencies(self) -> list[float]:
        """Take in lines until none is left or the budget of a tick is spent; returns latencies."""
        if self._searches is None:
            self._take_some(_LINES_PER_LOOK)
        else:
            try:
                self._searches.run(lambda: self._take_some(1))
            except SearchTooLongError:
                self.tally.note_malformed(self._present, why="the pattern takes too long")
        latencies, self._latencies = self._latencies, []
        self.tally.accepted += len(latencies)
        self.tally.resolution.take(latencies)
        return latencies

    def _take_some(self, lines_per_look: int) -> None:
        """Take in lines until the budget is spent; may be ended at any point."""
        until_s = time.thread_time() + TICK_CPU_S
        while self._waiting:
            for _ in range(min(lines_per_look, len(self._waiting))):
                self._present = self._waiting.pop()
                self._take(self._present)
            if time.thread_time() >= until_s:
                break

    def _take(self, line: bytes) -> None:
        line = line.lstrip(b"\0")
        if not line.strip():
            return
        if len(line) > self._format.line_bytes:
            self.tally.note_malformed(line, why=TOO_LONG)
            return
        try:
            value = self._format.latency_ms(line.decode("utf-8", "replace"))
        except ValueError:
            self.tally.note_malformed(line)
            return
        if value is None:
            self.tally.failed += 1
        else:
            self._latencies.append(value)
