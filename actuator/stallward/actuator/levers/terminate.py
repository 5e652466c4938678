"""Ending a slot: SIGTERM to all of it, and after a grace cgroup.kill. It cannot be undone."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from stallward.actuator.errors import LeverError
from stallward.actuator.levers.lever import Members, PlannedWrite
from stallward.actuator.levers.quiet import QuietLever
from stallward.actuator.levers.result import LeverResult, attempt
from stallward.actuator.levers.worker import Superseded, Worker
from stallward.actuator.process_identity import send_signal, start_time_ticks
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


class EndLever(QuietLever):
    """Ends a slot once whenever that is wished anew.

    Args:
        spec: The description.
    """

    held = False

    def __init__(self, spec: EndSpec) -> None:
        self.name = spec.name
        self._spec = spec
        self._wanted = False
        self._worker: Worker[bool] = Worker(
            spec.name, self._work, pending_s=spec.grace_s + GRACE_S
        )

    @property
    def idle(self) -> bool:
        """Whether nothing is under way."""
        return not self._worker.busy

    def apply(self, granted: DesiredState, now_s: float) -> tuple[LeverResult, ...]:
        """Start ending the slot; during the grace it can still be called off."""
        wanted = self._spec.wanted_of(granted)
        if wanted == self._wanted:
            return ()
        self._wanted = wanted
        if wanted or self._worker.busy:
            self._worker.ask(wanted)
        return ()

    def poll(self, now_s: float) -> tuple[LeverResult, ...]:
        """Whether the slot has ended, and by what."""
        return self._worker.poll(now_s)

    def plan(self, granted: DesiredState) -> tuple[PlannedWrite, ...]:
        """One line if the slot would be ended."""
        if not self._spec.wanted_of(granted) or self._wanted:
            return ()
        plan = PlannedWrite(
            lever=self.name,
            target=f"SIGTERM to {len(self._spec.members())} processes",
            before="running",
            after=f"ended; killed after {self._spec.grace_s:g} s",
            undo="cannot be undone",
        )
        return (plan,)

    def restore(self, now_s: float) -> tuple[LeverResult, ...]:
        """Call it off if the grace is not over."""
        self._wanted = False
        if self._worker.busy:
            self._worker.ask(False)
        return ()

    def finish(self, deadline_s: float) -> tuple[LeverResult, ...]:
        """Wait for the thread."""
        if self._worker.wait(deadline_s):
            self._worker.stop()
        return self._worker.poll(time.monotonic())

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
