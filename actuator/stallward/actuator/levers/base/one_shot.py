"""What is done once whenever another target is wished, by a thread; nothing is held afterwards."""

from __future__ import annotations

import time
from typing import Generic, TypeVar

from stallward.actuator.levers.base.lever import QuietLever
from stallward.actuator.levers.base.worker import PENDING_S, Superseded, Worker
from stallward.actuator.record.lever_result import LeverResult
from stallward.agent.desired import DesiredState

T = TypeVar("T")
W = TypeVar("W")


class OneShotLever(QuietLever, Generic[T, W]):
    """Acts on a target ``T`` out of the granted state, by asking a worker for a wish ``W``.

    Args:
        name: Of the lever.
        missing: Why it cannot be used; empty if it can.
        nothing: The wish that ends what is under way.
        pending_s: When to report that a wish takes long.
    """

    def __init__(
        self, name: str, missing: str, nothing: W, *, pending_s: float = PENDING_S
    ) -> None:
        self.name = name
        self._missing = missing
        self._nothing = nothing
        self._wanted: T | None = None
        self._worker: Worker[W] = Worker(name, self._work, pending_s=pending_s)

    def _target(self, granted: DesiredState) -> T | None:
        """What of a state this lever takes."""
        raise NotImplementedError

    def _wish(self, target: T, granted: DesiredState) -> W:
        """What the worker is asked for."""
        raise NotImplementedError

    def _work(self, wish: W, superseded: Superseded) -> tuple[LeverResult, ...] | None:
        """Do it, on the worker's thread; see :class:`Worker`."""
        raise NotImplementedError

    @property
    def missing(self) -> tuple[str, ...]:
        """Why it cannot be used; empty if it can."""
        return (f"{self.name}: {self._missing}",) if self._missing else ()

    @property
    def held(self) -> bool:
        """Whether something may not be as it was: nothing that is done once is undone."""
        return False

    @property
    def idle(self) -> bool:
        """Whether nothing is under way."""
        return not self._worker.busy

    def apply(self, granted: DesiredState, now_s: float) -> tuple[LeverResult, ...]:
        """Start if another target is wished; stop if none is."""
        target = self._target(granted)
        if target == self._wanted:
            return ()
        self._wanted = target
        if target is None:
            return self._end()
        if self._missing:
            value = str(target)
            return (LeverResult(lever=self.name, value=value, ok=False, error=self._missing),)
        self._worker.ask(self._wish(target, granted))
        return ()

    def poll(self, now_s: float) -> tuple[LeverResult, ...]:
        """What has been done."""
        return self._worker.poll(now_s)

    def _new_target(self, granted: DesiredState) -> T | None:
        """What :meth:`apply` would start on; ``None`` for nothing."""
        target = self._target(granted)
        return None if target == self._wanted or self._missing else target

    def restore(self, now_s: float) -> tuple[LeverResult, ...]:
        """Stop what is under way."""
        self._wanted = None
        return self._end()

    def _end(self) -> tuple[LeverResult, ...]:
        if self._worker.busy or self.held:
            self._worker.ask(self._nothing)
        return ()

    def finish(self, deadline_s: float) -> tuple[LeverResult, ...]:
        """Wait for the thread."""
        if self._worker.wait(deadline_s):
            self._worker.stop()
        return self._worker.poll(time.monotonic())
