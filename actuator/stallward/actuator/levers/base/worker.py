"""A thread that makes writes which may block; the latest request wins.

A newer request interrupts a write that blocks, and so does time
(:mod:`stallward.actuator.kernel.memory.limit_writes`).
"""

from __future__ import annotations

import _thread
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, Generic, TypeVar

from stallward.actuator.kernel.memory.limit_writes import INTERRUPT, interrupt
from stallward.actuator.levers.base.lever import LeverDefaults
from stallward.actuator.record.lever_result import LeverResult
from stallward.agent.desired import DesiredState

R = TypeVar("R")

PENDING_S: Final = 2.0
"""A request that takes longer than this is reported as pending, once."""

INTERRUPT_S: Final = 1.0
"""A request under way is interrupted this often: a single write must not last longer."""

_STOP_S: Final = 1.0
_WAIT_STEP_S: Final = 0.1

Superseded = Callable[[], bool]
"""Says whether a newer request has come in; called between two steps."""


class Worker(Generic[R]):
    """Carries out the latest request, on a thread that the first request starts.

    Args:
        name: The lever's name, for results.
        work: Carries out one request and returns the results, or ``None`` if it stopped because
            a newer request came in. An error that it raises becomes a result.
        pending_s: How long a request may take before it is reported as pending.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[R, Superseded], tuple[LeverResult, ...] | None],
        *,
        pending_s: float = PENDING_S,
    ) -> None:
        self._name = name
        self._work = work
        self._pending_s = pending_s
        self._wake = threading.Condition()
        self._request: R | None = None
        self._asked = 0
        self._done = 0
        self._stopping = False
        self._started_s = 0.0
        self._said_pending = False
        self._results: deque[LeverResult] = deque()
        self._running = False
        self._thread_id = 0
        """The thread while it carries out a request; 0 otherwise."""
        self._interrupted_s = 0.0

    @property
    def busy(self) -> bool:
        """Whether a request is not done yet."""
        return self._done != self._asked

    def ask(self, request: R) -> None:
        """Have ``request`` carried out instead of the one under way; returns at once."""
        with self._wake:
            if not self.busy:
                self._started_s, self._said_pending = time.monotonic(), False
            self._request = request
            self._asked += 1
            self._wake.notify_all()
            self._interrupt(time.monotonic())
            if not self._start():
                error = "no room for another thread; it is tried again"
                result = LeverResult(lever=self._name, value=str(request), ok=False, error=error)
                self._results.append(result)

    def _interrupt(self, now_s: float) -> None:
        """Interrupt a write that is under way; call with the lock held."""
        self._interrupted_s = now_s
        if self._thread_id:
            interrupt(self._thread_id)

    def _start(self) -> bool:
        """Start the thread if it does not run; call with the lock held. False if it cannot."""
        if not self._running:
            try:
                # Thread.start() waits until the thread runs, which may take long under pressure.
                _thread.start_new_thread(self._run, ())
            except RuntimeError:  # EAGAIN: the limit of a group, a user or the node is reached
                return False
            self._running = True
        return True

    def poll(self, now_s: float) -> tuple[LeverResult, ...]:
        """Report what was done since the last call, and once that a request takes long."""
        if self.busy and not self._running:
            with self._wake:
                self._start()
        if self.busy and now_s - max(self._started_s, self._interrupted_s) >= INTERRUPT_S:
            with self._wake:
                self._interrupt(now_s)
        results = []
        while self._results:
            results.append(self._results.popleft())
        took_s = now_s - self._started_s
        slow = self._running and took_s >= self._pending_s
        if self.busy and slow and not self._said_pending:
            self._said_pending = True
            results.append(self._pending(took_s))
        return tuple(results)

    def _pending(self, took_s: float) -> LeverResult:
        error = f"pending: the kernel has not finished after {took_s:.1f} s"
        value = str(self._request)
        return LeverResult(
            lever=self._name, value=value, ok=False, error=error, took_ms=took_s * 1e3
        )

    def wait(self, deadline_s: float) -> bool:
        """Wait until nothing is left to do, at most until ``deadline_s``; false if too late.

        If no thread can be started, the caller's thread does the work: only a restore waits, and
        a restore must happen.
        """
        with self._wake:
            no_thread = self.busy and not self._start()
        if no_thread:
            self._do()
        with self._wake:
            while self.busy:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    return not self.busy
                if not self._wake.wait(min(left_s, _WAIT_STEP_S)):
                    self._interrupt(time.monotonic())  # an earlier one may have come too early
        return True

    def stop(self) -> None:
        """End the thread if it has nothing left to do; a later request starts another."""
        deadline_s = time.monotonic() + _STOP_S
        with self._wake:
            if self.busy:
                return
            self._stopping = True
            self._wake.notify_all()
            while self._running and (left_s := deadline_s - time.monotonic()) > 0:
                self._wake.wait(left_s)
            self._stopping = False

    def _attempt(self, request: R | None, number: int) -> tuple[LeverResult, ...] | None:
        try:
            return self._work(request, partial(self._superseded, number))  # type: ignore[arg-type]
        except Exception as error:  # if the thread died, the worker would be busy for ever
            said = str(error) or type(error).__name__
            return (LeverResult(lever=self._name, value=str(request), ok=False, error=said),)

    def _superseded(self, number: int) -> bool:
        return number != self._asked

    def _run(self) -> None:
        # Any other signal would interrupt a write; the main thread handles those.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - {INTERRUPT})
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
        """Carry out the latest request."""
        with self._wake:
            number, request = self._asked, self._request
            self._thread_id = threading.get_ident()
        results = self._attempt(request, number)
        with self._wake:
            self._thread_id = 0
        if results is None:
            return  # a newer request came in
        self._results.extend(results)
        with self._wake:
            self._done = number
            self._wake.notify_all()


class WorkerLever(LeverDefaults, Generic[R]):
    """A lever whose changes a worker makes."""

    _worker: Worker[R]

    def poll(self, now_s: float) -> tuple[LeverResult, ...]:
        """The results of the worker since the last call."""
        return self._worker.poll(now_s)

    def finish(self, deadline_s: float) -> tuple[LeverResult, ...]:
        """Wait for the worker."""
        if self._worker.wait(deadline_s):
            self._worker.stop()
        return self._worker.poll(time.monotonic())


T = TypeVar("T")


class OneShotLever(WorkerLever[R], Generic[T, R]):
    """Acts once for each new target, and holds nothing afterwards.

    It sends its worker a request ``R`` for a target ``T`` out of the granted state.

    Args:
        name: The lever's name.
        missing: Why the lever cannot be used; empty if it can.
        target_of: Takes the lever's target from a state; ``None`` if there is none.
        cancel: The request that stops what is under way.
        pending_s: How long a request may take before it is reported as pending.
    """

    def __init__(
        self,
        name: str,
        missing: str,
        target_of: Callable[[DesiredState], T | None],
        cancel: R,
        *,
        pending_s: float = PENDING_S,
    ) -> None:
        self.name = name
        self.why_missing = missing
        self._target_of, self._cancel = target_of, cancel
        self._wanted: T | None = None
        self._worker: Worker[R] = Worker(name, self._work, pending_s=pending_s)

    def _request(self, target: T, granted: DesiredState) -> R:
        """Make the request to the worker; by default it is the target."""
        return target  # type: ignore[return-value]

    def _work(self, request: R, superseded: Superseded) -> tuple[LeverResult, ...] | None:
        """Carry out a request on the worker's thread; see :class:`Worker`."""
        raise NotImplementedError

    @property
    def held(self) -> bool:
        """False: a one-shot action is never undone."""
        return False

    @property
    def idle(self) -> bool:
        """Whether nothing is under way."""
        return not self._worker.busy

    def apply(self, granted: DesiredState, now_s: float) -> tuple[LeverResult, ...]:
        """Start if there is a new target; stop if there is none any more."""
        target = self._target_of(granted)
        if target == self._wanted:
            return ()
        self._wanted = target
        if target is None:
            return self._end()
        if self.why_missing:
            return (self._result(str(target), self.why_missing),)
        self._worker.ask(self._request(target, granted))
        return ()

    def _new_target(self, granted: DesiredState) -> T | None:
        """The target on which :meth:`apply` would start; ``None`` if it would not."""
        target = self._target_of(granted)
        return None if target == self._wanted or self.why_missing else target

    def restore(self, now_s: float) -> tuple[LeverResult, ...]:
        """Stop what is under way."""
        self._wanted = None
        return self._end()

    def _end(self) -> tuple[LeverResult, ...]:
        if self._worker.busy or self.held:
            self._worker.ask(self._cancel)
        return ()
