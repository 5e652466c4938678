"""Waits between two ticks: for the next tick, an emergency, a command or a signal."""

from __future__ import annotations

import contextlib
import enum
import math
import os
import select
import time
from collections.abc import Callable
from typing import Final

from stallward.actuator.ipc.channels import GuardianLink
from stallward.actuator.kernel.memory.limit_writes import INTERRUPT
from stallward.actuator.loop.pacing import TickRate
from stallward.actuator.node.stall_watch import StallWatch, StallWatches

_MOST_SIGNALS: Final = 4096
_MOST_EVENTS: Final = 8
"""More than there are descriptors."""
_ALARM_S: Final = 0.02
"""The least time between two ticks because of memory waits."""


class Woken(enum.Enum):
    """Why the waiting ended."""

    DUE = 1
    """The next tick is due."""
    STALLED = 2
    """The protected application stalls, which calls for a tick now."""
    OUT_OF_MEMORY = 3
    """A slot waits for memory under a limit, which calls for a tick now."""
    STOPPED = 4
    """A signal came, or the guardian is gone."""


class Waiter:
    """Waits for the next tick, and meanwhile answers commands and watches for a stall.

    Args:
        link: The connection to the guardian.
        wake_fd: A descriptor from which the numbers of the signals that have come are read.
        command_fd: A descriptor that is readable when the service has sent a command.
        answer: Answers the commands.
        watch: Detects stalls of the protected application.
        alarm_fd: A descriptor that is readable while a slot waits for memory under a limit and no
            tick has seen it.
    """

    def __init__(
        self,
        *,
        link: GuardianLink,
        wake_fd: int,
        command_fd: int,
        answer: Callable[[], None],
        watch: StallWatch | StallWatches,
        alarm_fd: int = -1,
    ) -> None:
        self._link = link
        self._guardian_fd = link.connection.fileno()
        self._wake_fd = wake_fd
        self._command_fd = command_fd
        self._answer = answer
        self._watch = watch
        self._alarm_fd = alarm_fd
        self._alarmed_s = -math.inf
        self._poller = select.epoll()  # the kernel keeps the list: a wake-up costs a tenth less
        for fd in (wake_fd, command_fd, alarm_fd):
            if fd >= 0:
                self._poller.register(fd, select.EPOLLIN)
        # With 0, only the end of the guardian wakes the loop, and none of its answers.
        self._poller.register(self._guardian_fd, 0)
        self._trigger_fd = -1
        """The trigger that was registered; closing it has ended that."""
        self._trigger_number: int | tuple[int, int] = -1
        self._follow_trigger()

    def _follow_trigger(self) -> None:
        """Register the trigger that the watch has now: a group made again has a new one."""
        watch = self._watch
        if self._trigger_number == watch.trigger_number:
            return  # a new one may have the descriptor of the one before
        if self._trigger_fd >= 0:
            with contextlib.suppress(OSError):
                self._poller.unregister(self._trigger_fd)
        self._trigger_fd, self._trigger_number = watch.trigger_fd, watch.trigger_number
        if self._trigger_fd >= 0:
            self._poller.register(self._trigger_fd, select.EPOLLPRI)

    def until(self, due_s: float, rate: TickRate, *, watching: bool) -> Woken:
        """Wait until ``due_s`` at the latest; commands and signals are seen even if that is past.

        A wake-up costs more than a check for a stall, so checks are spread evenly, and none is
        just before the tick.

        Args:
            due_s: When the next tick is due (CLOCK_MONOTONIC).
            rate: Tells how often to check for a stall.
            watching: Whether a stall ends the waiting.
        """
        has_stalled, poll, clock_s = self._watch.has_stalled, self._poller.poll, time.monotonic
        now_s = clock_s()
        self._watch.reopen(now_s)
        self._follow_trigger()
        left_s = max(due_s - now_s, 0.0)
        checks = 1
        if watching:
            has_stalled()  # the tick has seen the stall until now
            checks = max(math.ceil(left_s / rate.watch_s(now_s)), 1)
        while True:
            events = poll(left_s / checks, _MOST_EVENTS)
            if events:
                ready = dict(events)
                if self._stopped(ready):
                    return Woken.STOPPED
                if self._alarm_fd in ready:
                    self._rest()
                    return Woken.OUT_OF_MEMORY
                if self._triggered(ready) and watching:
                    return Woken.STALLED
            else:
                checks = max(checks - 1, 1)
            left_s = due_s - clock_s()
            if left_s <= 0.0:
                return Woken.DUE
            if watching and has_stalled():
                return Woken.STALLED

    def _rest(self) -> None:
        """Keep the least time between two alarms, so that a flood does not take the CPU."""
        time.sleep(max(self._alarmed_s + _ALARM_S - time.monotonic(), 0.0))
        self._alarmed_s = time.monotonic()

    def _stopped(self, ready: dict[int, int]) -> bool:
        """Answer commands; return whether a signal has come or the guardian is gone."""
        if self._command_fd in ready:
            self._answer()
        signalled = self._wake_fd in ready and self._signalled()
        return signalled or (self._guardian_fd in ready and self._link.gone)

    def _signalled(self) -> bool:
        """Return whether a signal has come other than the one that only interrupts a write."""
        return any(number != INTERRUPT for number in os.read(self._wake_fd, _MOST_SIGNALS))

    def _triggered(self, ready: dict[int, int]) -> bool:
        """Return whether the kernel reports a stall; detach from a trigger whose group is gone.

        Such a trigger would be ready for ever, so that the loop, at its high priority, would
        never wait.
        """
        event = ready.get(self._trigger_fd, 0)
        if event & ~select.EPOLLPRI:
            self._watch.detach()
            self._follow_trigger()
            return False
        return bool(event)
