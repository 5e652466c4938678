"""Ends searches of a regular expression that take too long.

A user writes the pattern, but whoever can put text into the log chooses the lines, and some
patterns take minutes for a line that was made for them. Python's engine looks for signals while
it searches, and nothing else can end it. So a timer of this process's own processor time sends
one, and its handler raises.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Final, TypeVar

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
