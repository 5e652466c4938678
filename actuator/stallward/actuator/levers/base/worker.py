"""What may block is done by a thread of its own; the last wish wins."""

from __future__ import annotations

import _thread
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, Generic, TypeVar

from stallward.actuator.record.lever_result import LeverResult

W = TypeVar("W")

PENDING_S: Final = 2.0
"""After this long a wish that is still being worked on is reported, once."""

_STOP_S: Final = 1.0

Superseded = Callable[[], bool]
"""Whether a newer wish has come in; asked between two steps."""


class Worker(Generic[W]):
    """Works on the latest wish, on a thread that is started by the first one.

    Args:
        name: Of the lever, for results.
        work: Does one wish and says what became of it; ``None`` if it stopped because a newer
            one came in. What it raises becomes a result.
        pending_s: When to report that it takes long.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[W, Superseded], tuple[LeverResult, ...] | None],
        *,
        pending_s: float = PENDING_S,
    ) -> None:
        self._name = name
        self._work = work
        self._pending_s = pending_s
        self._wake = threading.Condition()
        self._wish: W | None = None
        self._asked = 0
        self._done = 0
        self._stopping = False
        self._started_s = 0.0
        self._said_pending = False
        self._results: deque[LeverResult] = deque()
        self._running = False

    @property
    def busy(self) -> bool:
        """Whether a wish is not done yet."""
        return self._done != self._asked

    def ask(self, wish: W) -> None:
        """Have ``wish`` done instead of what is being done; returns at once."""
        with self._wake:
            if not self.busy:
                self._started_s, self._said_pending = time.monotonic(), False
            self._wish = wish
            self._asked += 1
            self._wake.notify_all()
            if not self._start():
                error = "no room for another thread; it is tried again"
                result = LeverResult(lever=self._name, value=str(wish), ok=False, error=error)
                self._results.append(result)

    def _start(self) -> bool:
        """Have a thread, the lock being held; whether there is one."""
        if not self._running:
            try:
                # Thread.start() waits until the thread runs, which may take long under pressure.
                _thread.start_new_thread(self._run, ())
            except RuntimeError:  # EAGAIN: the limit of a group, a user or the node is reached
                return False
            self._running = True
        return True

    def poll(self, now_s: float) -> tuple[LeverResult, ...]:
        """What has been done since the last call; once, that something takes long."""
        if self.busy and not self._running:
            with self._wake:
                self._start()
        found = []
        while self._results:
            found.append(self._results.popleft())
        took_s = now_s - self._started_s
        slow = self._running and took_s >= self._pending_s
        if self.busy and slow and not self._said_pending:
            self._said_pending = True
            found.append(self._pending(took_s))
        return tuple(found)

    def _pending(self, took_s: float) -> LeverResult:
        error = f"pending: the kernel has not finished after {took_s:.1f} s"
        value = str(self._wish)
        return LeverResult(
            lever=self._name, value=value, ok=False, error=error, took_ms=took_s * 1e3
        )

    def wait(self, deadline_s: float) -> bool:
        """Wait until nothing is left to do, but not beyond ``deadline_s``; whether that is so.

        What no thread can be had for is done in this one: only restoring waits, and that must be.
        """
        with self._wake:
            alone = self.busy and not self._start()
        if alone:
            self._do()
        with self._wake:
            while self.busy:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0 or not self._wake.wait(left_s):
                    return not self.busy
        return True

    def stop(self) -> None:
        """End the thread if it has nothing left to do; a later wish starts another."""
        deadline_s = time.monotonic() + _STOP_S
        with self._wake:
            if self.busy:
                return
            self._stopping = True
            self._wake.notify_all()
            while self._running and (left_s := deadline_s - time.monotonic()) > 0:
                self._wake.wait(left_s)
            self._stopping = False

    def _attempt(self, wish: W | None, number: int) -> tuple[LeverResult, ...] | None:
        try:
            return self._work(wish, partial(self._superseded, number))  # type: ignore[arg-type]
        except Exception as error:  # a thread that died would be busy for ever
            said = str(error) or type(error).__name__
            return (LeverResult(lever=self._name, value=str(wish), ok=False, error=said),)

    def _superseded(self, number: int) -> bool:
        return number != self._asked

    def _run(self) -> None:
        # A signal would end a write half way; the main thread handles them.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while True:
            with self._wake:
                while not self.busy:
                    if self._stopping:
                        self._running = False
                        self._wake.notify_all()
                        return
                    self._wake.wait()
            self._do()

    def _do(self) -> None:
        """Do what was asked for last."""
        with self._wake:
            number, wish = self._asked, self._wish
        results = self._attempt(wish, number)
        if results is None:
            return  # a newer wish
        self._results.extend(results)
        with self._wake:
            self._done = number
            self._wake.notify_all()
