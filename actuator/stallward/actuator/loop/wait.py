"""What the loop does between two ticks: it waits for whatever comes first."""

from __future__ import annotations

import enum
import math
import select
import time
from collections.abc import Callable

from stallward.actuator.ipc.channels import GuardianLink
from stallward.actuator.loop.pacing import Rhythm
from stallward.actuator.node.stall_watch import StallWatch


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
        self._poller = select.poll()  # not select(2): a big node has descriptors beyond 1023
        for fd in (wake_fd, command_fd):
            self._poller.register(fd, select.POLLIN)
        # Only its end, which is always told: its answers are no reason to wake up.
        self._poller.register(self._guardian_fd, 0)
        self._trigger_fd = -1
        """As it is registered, whatever has become of it."""
        self._follow_trigger()

    def _follow_trigger(self) -> None:
        """Wait for the trigger that the watch has now: a group made anew has another."""
        if self._trigger_fd != self._watch.trigger_fd:
            if self._trigger_fd >= 0:
                self._poller.unregister(self._trigger_fd)
            self._trigger_fd = self._watch.trigger_fd
            if self._trigger_fd >= 0:
                self._poller.register(self._trigger_fd, select.POLLPRI)

    def until(self, due_s: float, rhythm: Rhythm, *, watching: bool) -> Woken:
        """Wait until ``due_s`` at the latest; what has come in is seen even if that is past.

        A wake-up costs more than what it is for, so looks are spread evenly: none is just
        before the tick.

        Args:
            due_s: When the next tick is due, CLOCK_MONOTONIC.
            rhythm: Says how often to look for a stall.
            watching: Whether a stall is to end the waiting.
        """
        has_stalled, poll, clock_s = self._watch.has_stalled, self._poller.poll, time.monotonic
        now_s = clock_s()
        self._watch.reopen(now_s)
        self._follow_trigger()
        left_s = max(due_s - now_s, 0.0)
        looks = 1
        if watching:
            has_stalled()  # the tick has seen the stall until now
            looks = max(math.ceil(left_s / rhythm.watch_s(now_s)), 1)
        while True:
            found = poll(math.ceil(left_s / looks * 1e3))
            if found:
                ready = dict(found)
                if self._stopped(ready):
                    return Woken.STOPPED
                if self._triggered(ready) and watching:
                    return Woken.STALLED
            else:
                looks = max(looks - 1, 1)
            left_s = due_s - clock_s()
            if left_s <= 0.0:
                return Woken.DUE
            if watching and has_stalled():
                return Woken.STALLED

    def _stopped(self, ready: dict[int, int]) -> bool:
        if self._command_fd in ready:
            self._answer()
        return self._wake_fd in ready or (self._guardian_fd in ready and self._link.gone)

    def _triggered(self, ready: dict[int, int]) -> bool:
        """Whether the kernel reports a stall; a trigger whose group is gone is given up.

        It would be ready for ever, and the loop, which goes before everything else, never wait.
        """
        event = ready.get(self._trigger_fd, 0)
        if event & ~select.POLLPRI:
            self._watch.detach()
            self._follow_trigger()
            return False
        return bool(event)
