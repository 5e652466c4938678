"""Waiting for the next tick, for the end of a process, or for a request to stop."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterator
from types import FrameType


class Stop:
    """Ends a trace: at a signal, or when a process has ended."""

    def __init__(self) -> None:
        self.requested = False
        self._event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._ends: list[int] = []

    def request(self) -> None:
        """End the trace before the next tick; may be called from a signal's handler."""
        self.requested = True
        os.eventfd_write(self._event, 1)

    def watch(self, pid: int) -> None:
        """Let :meth:`wait` return early when this process ends; if it has ended, do nothing."""
        with contextlib.suppress(OSError):
            self._ends.append(os.pidfd_open(pid))

    def wait(self, until_s: float) -> None:
        """Wait for a time by CLOCK_MONOTONIC, a request, or the end of a watched process."""
        poll = select.poll()
        for fd in (self._event, *self._ends):
            poll.register(fd, select.POLLIN)
        while not self.requested and (left_s := until_s - time.monotonic()) > 0.0:
            ended = [fd for fd, _ in poll.poll(max(left_s, 0.0) * 1e3) if fd != self._event]
            for fd in ended:
                poll.unregister(fd)
                self._ends.remove(fd)
                os.close(fd)
            if ended:
                return

    def close(self) -> None:
        """Close all descriptors."""
        for fd in (self._event, *self._ends):
            os.close(fd)
        self._ends = []


@contextlib.contextmanager
def stopping_at_signals() -> Iterator[Stop]:
    """Make a :class:`Stop` that Ctrl-C and SIGTERM request; a second one acts as usual."""
    stop = Stop()

    def end(number: int, _frame: FrameType | None) -> None:
        signal.signal(number, previous[number])
        stop.request()

    numbers: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM)
    previous = {number: signal.signal(number, end) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        stop.close()
