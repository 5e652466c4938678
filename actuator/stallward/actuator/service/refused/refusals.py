"""Refused calls: each is counted, and logged as far as the log is not flooded."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from stallward.actuator.runtime.stderr_line import say
from stallward.agent.printable import printable

MOST_LINES: Final = 20
"""The most lines in a span of :data:`SPAN_S`; what is left out is counted in the next line."""
SPAN_S: Final = 60.0
_MOST_CHARACTERS: Final = 300


def _say(text: str) -> None:
    say(text, "service")


class Refusals:
    """Counts and logs refused calls.

    Args:
        log: Takes a line.
        clock: The time in seconds.
    """

    def __init__(
        self,
        log: Callable[[str], None] = _say,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.counts: Counter[str] = Counter()
        """Name of a status -> how many calls were refused with it."""
        self._log = log
        self._clock = clock
        self._since_s = clock()
        self._lines = 0
        self._left_out = 0

    def note(self, status: str, message: str, client: str) -> None:
        """Note one refused call.

        Args:
            status: The name of gRPC's status.
            message: Why it was refused. It may hold text of the client.
            client: Who called.
        """
        self.counts[status] += 1
        now_s = self._clock()
        if now_s - self._since_s >= SPAN_S:
            self._since_s, self._lines = now_s, 0
        if self._lines >= MOST_LINES:
            self._left_out += 1
            return
        more = f" ({self._left_out} more were not logged)" if self._left_out else ""
        self._lines, self._left_out = self._lines + 1, 0
        text = f"refused {client}: {status}: {message}"[:_MOST_CHARACTERS]
        self._log(printable(text) + more)  # a client cannot begin a line of its own in the log
