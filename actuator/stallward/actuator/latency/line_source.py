"""Follows a file or FIFO that a program writes: new content, rotation, truncation, backlog.

Reading never blocks, and the work of a tick is bounded. The file may appear later.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from enum import Enum
from pathlib import Path
from types import FrameType
from typing import Final, NamedTuple, TypeVar

from stallward.actuator.errors import SensorError
from stallward.actuator.kernel.files import ABSENT
from stallward.actuator.latency.config import LinesLatency
from stallward.actuator.latency.counts import LatencyCounts, Tally
from stallward.actuator.latency.line_format import TOO_LONG, LineFormat, format_of
from stallward.actuator.latency.window import LatencyWindow
from stallward.agent.sample import LatencySample

PIECE_BYTES: Final = 65536
"""At most this much is read at once."""
TICK_PIECES: Final = 16
"""At most so many pieces are read per tick."""
_LAG_BYTES: Final = TICK_PIECES * PIECE_BYTES
"""A backlog beyond this is skipped: old latencies must not pass for new ones. The pipe of a FIFO
holds as much, so that its writer, the application, need not wait for the next tick."""
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
        """Read at most :data:`PIECE_BYTES` of new content.

        After a failure, such as ESTALE of NFS, the file of that name is opened again.

        Raises:
            SensorError: If the file is not there yet, cannot be read, or is not a file any more.
        """
        try:
            if self._fd < 0 and not self._open(at_end=False):
                raise SensorError(self.path, "there is no such file yet")
            content = self._read_regular() if self._regular else os.read(self._fd, PIECE_BYTES)
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
            self._skip_to(size - PIECE_BYTES)
        content = self._read_on()
        if content is None:  # other content is where ours was
            self._rewind()
            if size > _LAG_BYTES:
                self._skip_to(size - PIECE_BYTES)
            content = self._read_on() or b""
        self._offset += len(content)
        self._last = (self._last + content)[-_FINGERPRINT_BYTES:]
        return content

    def _read_on(self) -> bytes | None:
        """Read what follows; ``None`` if what was read last is not in front of it any more."""
        known = len(self._last)
        both = os.pread(self._fd, known + PIECE_BYTES, self._offset - known)
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
        """Switch at the end of this file to another one of its name, once that is written to."""
        try:
            status = os.stat(self.path)  # noqa: PTH116 - a Path object a tick buys nothing
        except OSError as error:
            if error.errno in ABSENT:
                return
            raise
        is_written = status.st_size > 0 or not stat.S_ISREG(status.st_mode)
        if is_written and (status.st_dev, status.st_ino) != self._identity:
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
        if not self._regular:
            _enlarge_pipe(fd)
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


def _enlarge_pipe(fd: int) -> None:
    """Let a FIFO hold what a tick reads at most; one that holds more is left as it is."""
    with contextlib.suppress(OSError):  # a user may have too many large pipes
        if fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ) < _LAG_BYTES:
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _LAG_BYTES)


# ---------- Ends searches of a regular expression that take too long
# A user writes the pattern, but whoever can put text into the log chooses the lines, and some
# patterns take minutes for a line that was made for them. Python's engine looks for signals while
# it searches, and nothing else can end it. So a timer of this process's own processor time sends
# one, and its handler raises. The kernel looks at such timers at each tick of its own clock (4 ms
# with 250 Hz), so a search may take that much longer.

T = TypeVar("T")
_TIMER: Final = signal.ITIMER_VIRTUAL
_SIGNAL: Final = signal.SIGVTALRM
_LOOK_S: Final = 0.001


class SearchTooLongError(Exception):
    """Raised when a search was ended."""


class SearchBudget:
    """Runs functions that search, and ends them when they take too long.

    Only Python's main thread can do that; in other threads a search takes as long as it takes.
    """

    def __init__(self) -> None:
        self._watching = self._running = False
        self._until_s = 0.0
        self._works = threading.current_thread() is threading.main_thread()
        if self._works:
            signal.signal(_SIGNAL, self._end)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Look from time to time whether a search takes too long; may be used within itself."""
        is_main = threading.current_thread() is threading.main_thread()
        if self._watching or not (self._works and is_main):
            yield
            return
        # The signal shall not wake a select, which waits for signals that end the process.
        wake_fd = signal.set_wakeup_fd(-1)
        self._watching = True
        signal.setitimer(_TIMER, _LOOK_S, _LOOK_S)
        try:
            yield
        finally:
            signal.setitimer(_TIMER, 0.0)
            self._watching = False
            signal.set_wakeup_fd(wake_fd, warn_on_full_buffer=False)

    def run(self, function: Callable[[], T], until_s: float) -> T:
        """Return what ``function`` returns.

        Args:
            function: What searches. It may be ended at any point, also after its last step.
            until_s: The processor time of this thread at which it is ended while watched.

        Raises:
            SearchTooLongError: If it was ended.
        """
        try:
            self._until_s, self._running = until_s, True
            result = function()
            self._running = False
            return result
        finally:
            self._running = False

    def _end(self, number: int, frame: FrameType | None) -> None:
        if self._running and time.thread_time() >= self._until_s:
            self._running = False
            raise SearchTooLongError


TICK_CPU_S: Final = 0.01
"""The processor time that a tick takes for lines; those that are left wait for the next tick."""
SEARCH_CPU_S: Final = 0.005
"""The same after which the search of a single line is ended, and the tick takes no more. A line
that the end of the tick left less is searched again, as the first one of the next tick."""
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
        self._searches = SearchBudget() if line_format.searches else None
        self._partial = b""
        self._discards = False
        """Whether the rest of the present line is discarded."""
        self._waiting: list[bytes] = []
        """Lines that are not taken in yet, the next one last."""
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

    def take_latencies(self, until_s: float) -> list[float]:
        """Take in lines until none is left or time is up. Returns latencies.

        Args:
            until_s: This thread's processor time at which the budget of the tick is spent.
        """
        with self.watching():
            self._take_some(until_s)
        latencies, self._latencies = self._latencies, []
        self.tally.accepted += len(latencies)
        self.tally.resolution.take(latencies)
        return latencies

    def watching(self) -> AbstractContextManager[None]:
        """Have searches ended that take too long; once for a whole tick that is more exact."""
        return contextlib.nullcontext() if self._searches is None else self._searches.watching()

    def _take_some(self, until_s: float) -> None:
        """Take in lines until the budget is spent, or a search was ended."""
        lines_per_look = _LINES_PER_LOOK if self._searches is None else 1
        now_s = time.thread_time()
        while self._waiting:
            began_s = now_s
            for _ in range(min(lines_per_look, len(self._waiting))):
                line = self._waiting.pop()
                try:
                    self._take(line, min(began_s + SEARCH_CPU_S, until_s))
                except SearchTooLongError:
                    if time.thread_time() < began_s + SEARCH_CPU_S:
                        self._waiting.append(line)
                    else:
                        self.tally.note_malformed(line, why="the pattern takes too long")
                    return
            now_s = time.thread_time()
            if now_s >= until_s:
                return

    def _take(self, line: bytes, until_s: float) -> None:
        line = line.lstrip(b"\0")
        if not line.strip():
            return
        if len(line) > self._format.line_bytes:
            self.tally.note_malformed(line, why=TOO_LONG)
            return
        try:
            text = line.decode("utf-8", "replace")
            value = (
                self._format.latency_ms(text)
                if self._searches is None
                else self._searches.run(lambda: self._format.latency_ms(text), until_s)
            )
        except ValueError:
            self.tally.note_malformed(line)
            return
        if value is None:
            self.tally.failed += 1
        else:
            self._latencies.append(value)


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

        Of many lines it reads :data:`TICK_PIECES` pieces, or what it has processor time for
        (:data:`TICK_CPU_S`); the rest waits for the next call.

        Args:
            now_s: The time by CLOCK_MONOTONIC; read if not given.

        Raises:
            SensorError: If the file is not there yet, cannot be read, or is not a file any more.
        """
        now_s = time.monotonic() if now_s is None else now_s
        until_s = time.thread_time() + TICK_CPU_S
        try:
            with self._reader.watching():
                self._take(now_s, until_s)
                for _ in range(TICK_PIECES):
                    if self._reader.is_behind or time.thread_time() >= until_s:
                        break
                    piece = self._file.read()
                    self._reader.split(piece)
                    self._take(now_s, until_s)
                    if len(piece.content) < PIECE_BYTES:
                        break
        except SensorError as error:
            self.fault = str(error)
            raise
        self.fault = ""
        return self._window.sample(now_s)

    def _take(self, now_s: float, until_s: float) -> None:
        if self._reader.is_behind:
            self._window.add_points(now_s, self._reader.take_latencies(until_s))

    @property
    def counts(self) -> LatencyCounts:
        """What became of the lines since the source was opened."""
        self._reader.tally.lost = self._file.missed
        return self._reader.tally.counts()

    def close(self) -> None:
        """Close the file; a later read opens it again."""
        self._file.close()


def open_lines(config: LinesLatency) -> LineSource:
    """Open the file or FIFO that a configuration names.

    Raises:
        ConfigError: If the format of the lines is not valid.
    """
    return LineSource(config.path, format_of(config))
