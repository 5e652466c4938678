"""Ending a slot: SIGTERM to all of it, and after a grace cgroup.kill. It cannot be undone."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from stallward.actuator.errors import LeverError
from stallward.actuator.kernel.process_identity import send_signal, start_time_ticks
from stallward.actuator.levers.base.lever import Members, PlannedWrite
from stallward.actuator.levers.base.one_shot import OneShotLever
from stallward.actuator.levers.base.worker import Superseded
from stallward.actuator.record.lever_result import LeverResult, attempt
from stallward.agent.desired import DesiredState

GRACE_S: Final = 5.0
"""How long a slot may take to end by itself."""
_LOOK_S: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class EndSpec:
    """What makes a lever that ends a slot.

    Attributes:
        name: E.g. ``terminate:hog0``.
        members: The slot's processes.
        kill: Kills all of them; returns those that are left.
        wanted_of: Whether a state ends the slot. That the configuration allows it is the
            guard's to see.
        proc: Where processes are.
        grace_s: Between SIGTERM and killing.
        check: Called before signalling and before killing; raises to refuse it.
    """

    name: str
    members: Members
    kill: Callable[[], tuple[int, ...]]
    wanted_of: Callable[[DesiredState], bool]
    proc: Path
    grace_s: float = GRACE_S
    check: Callable[[], None] = field(default=lambda: None)


class EndLever(OneShotLever[Literal[True], bool]):
    """Ends a slot once whenever that is wished anew; during the grace it can be called off.

    Args:
        spec: The description.
    """

    def __init__(self, spec: EndSpec) -> None:
        self._spec = spec
        super().__init__(spec.name, "", nothing=False, pending_s=spec.grace_s + GRACE_S)

    def _target(self, granted: DesiredState) -> Literal[True] | None:
        return True if self._spec.wanted_of(granted) else None

    def _wish(self, target: Literal[True], granted: DesiredState) -> bool:
        return target

    def plan(self, granted: DesiredState) -> tuple[PlannedWrite, ...]:
        """One line if the slot would be ended."""
        if self._new_target(granted) is None:
            return ()
        plan = PlannedWrite(
            lever=self.name,
            target=f"SIGTERM to {len(self._spec.members())} processes",
            before="running",
            after=f"ended; killed after {self._spec.grace_s:g} s",
            undo="cannot be undone",
        )
        return (plan,)

    def _work(self, wanted: bool, superseded: Superseded) -> tuple[LeverResult, ...] | None:
        if not wanted:
            return ()
        result = attempt(self.name, "SIGTERM", self._ask_all)
        if not result.ok:
            return (result,)
        deadline_s = time.monotonic() + self._spec.grace_s
        while self._spec.members():
            if superseded():
                return None
            if time.monotonic() >= deadline_s:
                return (attempt(self.name, "cgroup.kill", self._kill),)
            time.sleep(_LOOK_S)
        return (result,)

    def _ask_all(self) -> None:
        self._spec.check()
        for pid in self._spec.members():
            ticks = start_time_ticks(self._spec.proc, pid)
            if ticks is not None and send_signal(self._spec.proc, pid, ticks, signal.SIGTERM):
                # A stopped process would take the signal only when it runs again.
                send_signal(self._spec.proc, pid, ticks, signal.SIGCONT)

    def _kill(self) -> None:
        self._spec.check()
        left = self._spec.kill()
        if left:
            raise LeverError(f"Processes {list(left)} cannot be killed.")
