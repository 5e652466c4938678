"""What the loop does between two ticks: it waits for whatever comes first."""

from __future__ import annotations

import enum
import select
import time
from collections.abc import Callable

from stallward.actuator.channels import GuardianLink
from stallward.actuator.pacing import Rhythm
from stallward.actuator.stall_watch import StallWatch


class Woken(enum.Enum):
    """Why the waiting ended."""

    DUE = 1
    """It is time for the next tick."""
    STALLED = 2
    """The protected application stalls: tick now."""
    STOPPED = 3
    """A signal came, or the guardian is gone."""


class Waiter:
    """Waits for the next tick; commands are answered and a stall is noticed meanwhile.

    Args:
        link: The line to the guardian.
        wake_fd: Readable when a signal came.
        command_fd: Readable when the service asks something.
        answer: Answers what was asked.
        watch: Sees the protected application stall.
    """

    def __init__(
        self,
        *,
        link: GuardianLink,
        wake_fd: int,
        command_fd: int,
        answer: Callable[[], None],
        watch: StallWatch,
    ) -> None:
        self._link = link
        self._guardian_fd = link.connection.fileno()
        self._wake_fd = wake_fd
        self._command_fd = command_fd
        self._answer = answer
        self._watch = watch
        self._readable = [self._guardian_fd, wake_fd, command_fd]
        self._urgent = [] if watch.trigger_fd < 0 else [watch.trigger_fd]

    def until(self, due_s: float, rhythm: Rhythm, *, watching: bool) -> Woken:
        """Wait until ``due_s`` at the latest.

        Args:
            due_s: When the next tick is due, CLOCK_MONOTONIC.
            rhythm: Says how often to look for a stall.
            watching: Whether a stall is to end the waiting.
        """
        look = self._watch.look
        watch_s = rhythm.watch_s(time.monotonic())
        if watching:
            look()  # what the tick has seen is no news
        while (left_s := due_s - time.monotonic()) > 0:
            wait_s = min(left_s, watch_s) if watching else left_s
            # Not poll(2): its milliseconds are too coarse for the deadline of a tick.
            asked = self._urgent if watching else ()
            ready, _, urgent = select.select(self._readable, (), asked, wait_s)
            if ready and self._stopped(ready):
                return Woken.STOPPED
            if watching and ((urgent and self._triggered()) or look()):
                return Woken.STALLED
        return Woken.DUE

    def _stopped(self, ready: list[int]) -> bool:
        if self._command_fd in ready:
            self._answer()
        return self._wake_fd in ready or (self._guardian_fd in ready and self._link.gone)

    def _triggered(self) -> bool:
        """Whether the kernel reports a stall; one that cannot any more is given up."""
        if self._watch.trigger_alive():
            return True
        self._urgent = []
        return False
