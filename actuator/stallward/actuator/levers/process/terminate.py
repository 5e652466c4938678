"""The lever that ends a slot; it cannot be undone.

It sends SIGTERM and kills what is left after a grace period, or kills at once where that is
wanted.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from stallward.actuator.errors import LeverError
from stallward.actuator.levers.base.lever import Members, PlannedWrite
from stallward.actuator.levers.base.one_shot import OneShotLever
from stallward.actuator.levers.base.worker import Superseded
from stallward.actuator.record.lever_result import LeverResult, attempt
from stallward.agent.desired import DesiredState

GRACE_S: Final = 5.0
"""How long a slot may take to end by itself after SIGTERM."""
_LOOK_S: Final = 0.05
_KILL: Final = "cgroup.kill"


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminateSpec:
    """The description of a lever that ends a slot."""

    name: str
    """The lever's name, e.g. ``terminate:hog0``."""
    members: Members
    """Returns the slot's processes."""
    holds: Callable[[int], bool]
    """Asks the kernel whether a process is one of them now."""
    populated: Callable[[], bool]
    """Whether a process is left, be it one that ``members`` cannot name."""
    kill: Callable[[], tuple[int, ...]]
    """Kills all processes; returns those that are left."""
    signal_of: Callable[[DesiredState], signal.Signals | None]
    """The signal by which a state ends the slot; ``None`` if it does not. The guard checks that
    the configuration allows it."""
    grace_s: float = GRACE_S
    """The time between SIGTERM and killing."""
    check: Callable[[], None] = field(default=lambda: None)
    """Called before signalling and before killing; raises to refuse it."""


class TerminateLever(OneShotLever[signal.Signals, signal.Signals | None]):
    """Ends a slot once each time that is requested; within the grace period it can be cancelled.

    Where a kill is wanted while it waits for the slot to end by itself, it kills.

    Args:
        spec: The description.
    """

    def __init__(self, spec: TerminateSpec) -> None:
        self._spec = spec
        super().__init__(spec.name, "", cancel=None, pending_s=spec.grace_s + GRACE_S)

    def _target(self, granted: DesiredState) -> signal.Signals | None:
        return self._spec.signal_of(granted)

    def _request(self, target: signal.Signals, granted: DesiredState) -> signal.Signals:
        return target

    def plan(self, granted: DesiredState) -> tuple[PlannedWrite, ...]:
        """One planned write if the slot would be ended."""
        target = self._new_target(granted)
        if target is None:
            return ()
        kills = target is signal.SIGKILL
        plan = PlannedWrite(
            lever=self.name,
            target=f"{target.name} to {len(self._spec.members())} processes",
            before="running",
            after="killed" if kills else f"ended; killed after {self._spec.grace_s:g} s",
            undo="cannot be undone",
        )
        return (plan,)

    def _work(
        self, wanted: signal.Signals | None, superseded: Superseded
    ) -> tuple[LeverResult, ...] | None:
        if wanted is None:
            return ()
        if wanted is signal.SIGKILL:
            return (attempt(self.name, _KILL, self._kill),)
        result = attempt(self.name, "SIGTERM", self._terminate_all)
        if not result.ok:
            return (result,)
        deadline_s = time.monotonic() + self._spec.grace_s
        while self._spec.populated():
            if superseded():
                return None
            if time.monotonic() >= deadline_s:
                return (attempt(self.name, _KILL, self._kill),)
            time.sleep(_LOOK_S)
        return (result,)

    def _terminate_all(self) -> None:
        self._spec.check()
        for pid in self._spec.members():
            self._terminate(pid)

    def _terminate(self, pid: int) -> None:
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            return
        try:
            # The descriptor pins the process; only now is it asked whether it is a member.
            if self._spec.holds(pid):
                signal.pidfd_send_signal(pidfd, signal.SIGTERM)
                # A stopped process would take the signal only when it runs again.
                signal.pidfd_send_signal(pidfd, signal.SIGCONT)
        except ProcessLookupError:
            pass
        except OSError as error:
            raise LeverError(f"Process {pid} cannot be ended ({error.strerror}).") from error
        finally:
            os.close(pidfd)

    def _kill(self) -> None:
        self._spec.check()
        left = self._spec.kill()
        if left:
            raise LeverError(f"Processes {list(left)} cannot be killed.")
