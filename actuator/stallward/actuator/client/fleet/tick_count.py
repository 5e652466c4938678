"""Counts the ticks of one node that a watcher received, and those that it did not. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class TickCount:
    """What became of the ticks of one node since they are watched.

    Ticks are numbered on the node, so one that does not arrive leaves a gap, wherever it was lost.

    Args:
        every: Only every n-th tick is wanted.
    """

    every: int = 1
    received: int = 0
    first: int = -1
    """The number of the first tick that was received."""
    last: int = -1
    """The number of the last one."""
    lost: int = 0
    """Ticks that the daemon left out because this watcher was too slow, as it said."""
    unwatched: int = 0
    """Ticks that were made while the node was not watched, because the stream had ended."""
    unexplained: int = 0
    """Further numbers that did not come: the tick had no sample, or was lost inside the daemon."""
    restarts: int = 0
    """How often the numbers began again: the loop was restarted, and what it lost is not known."""
    streams: int = 0
    """How often the stream was opened."""
    problem: str = ""
    """Why the node is not watched now; empty if it is."""
    _skipped: int = 0

    def open(self) -> None:
        """Note that a new stream begins."""
        self.streams += 1
        self._skipped = 0

    def take(self, sequence: int, skipped: int) -> None:
        """Take one tick.

        Args:
            sequence: Its number on the node.
            skipped: How many ticks the daemon has left out in this stream so far.
        """
        new_stream = bool(self.problem) or not self.received
        missing = 0
        if self.received and sequence > self.last:
            missing = (sequence - self.last) // self.every - 1
        self.restarts += bool(self.received) and sequence <= self.last
        told = skipped - self._skipped
        self.lost += told
        beyond = max(missing - told, 0)
        if new_stream:
            self.unwatched += beyond
        else:
            self.unexplained += beyond
        self.received += 1
        self.first = sequence if self.first < 0 else self.first
        self.problem, self.last, self._skipped = "", sequence, skipped

    def close(self, problem: str) -> None:
        """Note that the stream ended."""
        self.problem = problem or "The stream ended."
