"""A lever that acts once for each new target, on a thread, and holds nothing afterwards."""

from __future__ import annotations

import time
from typing import Generic, TypeVar

from stallward.actuator.levers.base.lever import LeverDefaults
from stallward.actuator.levers.base.worker import PENDING_S, Superseded, Worker
from stallward.actuator.record.lever_result import LeverResult
from stallward.agent.desired import DesiredState

T = TypeVar("T")
R = TypeVar("R")


class OneShotLever(LeverDefaults, Generic[T, R]):
    """Acts on a target ``T`` out of the granted state by sending a worker a request ``R``.

    Args:
        name: The lever's name.
        missing: Why the lever cannot be used; empty if it can.
        cancel: The request that stops what is under way.
        pending_s: How long a request may take before it is reported as pending.
    """

    def __init__(
        self, name: str, missing: str, cancel: R, *, pending_s: float = PENDING_S
    ) -> None:
        self.name = name
        self._missing = missing
        self._cancel = cancel
        self._wanted: T | None = None
        self._worker: Worker[R] = Worker(name, self._work, pending_s=pending_s)

    def _target(self, granted: DesiredState) -> T | None:
        """Take the lever's target from a state; ``None`` if there is none."""
        raise NotImplementedError

    def _request(self, target: T, granted: DesiredState) -> R:
        """Make the request to the worker."""
        raise NotImplementedError

    def _work(self, request: R, superseded: Superseded) -> tuple[LeverResult, ...] | None:
        """Carry out a request on the worker's thread; see :class:`Worker`."""
        raise NotImplementedError

    @property
    def missing(self) -> tuple[str, ...]:
        """Why the lever cannot be used; empty if it can."""
        return (f"{self.name}: {self._missing}",) if self._missing else ()

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
        target = self._target(granted)
        if target == self._wanted:
            return ()
        self._wanted = target
        if target is None:
            return self._end()
        if self._missing:
            value = str(target)
            return (LeverResult(lever=self.name, value=value, ok=False, error=self._missing),)
        self._worker.ask(self._request(target, granted))
        return ()

    def poll(self, now_s: float) -> tuple[LeverResult, ...]:
        """The results since the last call."""
        return self._worker.poll(now_s)

    def _new_target(self, granted: DesiredState) -> T | None:
        """The target on which :meth:`apply` would start; ``None`` if it would not."""
        target = self._target(granted)
        return None if target == self._wanted or self._missing else target

    def restore(self, now_s: float) -> tuple[LeverResult, ...]:
        """Stop what is under way."""
        self._wanted = None
        return self._end()

    def _end(self) -> tuple[LeverResult, ...]:
        if self._worker.busy or self.held:
            self._worker.ask(self._cancel)
        return ()

    def finish(self, deadline_s: float) -> tuple[LeverResult, ...]:
        """Wait for the worker's thread."""
        if self._worker.wait(deadline_s):
            self._worker.stop()
        return self._worker.poll(time.monotonic())
