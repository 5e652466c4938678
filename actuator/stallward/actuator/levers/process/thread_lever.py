"""The lever on the nice values or CPUs of all threads of a slot.

There may be thousands of threads, each with a start time to read and a value to save, so a worker
thread does it. Once a second it sweeps for new threads and for foreign changes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from stallward.actuator.levers.base.file_lever import ORIGINAL
from stallward.actuator.levers.base.lever import Members, PlannedWrite
from stallward.actuator.levers.base.originals import Originals
from stallward.actuator.levers.base.worker import Superseded, Worker
from stallward.actuator.levers.process.thread_sweep import ThreadSweep
from stallward.actuator.record.lever_result import LeverResult, attempt
from stallward.agent.desired import DesiredState
from stallward.agent.sample import LeverState

SWEEP_S: Final = 1.0
"""How often the lever sweeps for new threads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadSpec:
    """The description of a lever on the threads of a slot."""

    name: str
    """The lever's name, e.g. ``nice:hog0``."""
    what: str
    """The value that is changed: ``nice`` or ``cpus`` (see ``kernel/scheduling.py``)."""
    members: Members
    """Returns the slot's processes."""
    folder: Path | None
    """The slot's cgroup directory; ``None`` where it is a process tree."""
    value_of: Callable[[DesiredState], str | None]
    """Takes the lever's value from a desired state; ``None`` stands for the original."""
    proc: Path
    """The /proc directory."""
    missing: str = ""
    """Why the lever cannot be used; empty if it can."""
    check: Callable[[], None] = field(default=lambda: None)
    """Called before each change; raises to refuse it."""


class ThreadLever:
    """Gives every thread of a slot the wanted value, and later its original back.

    Args:
        spec: The description.
        originals: Keeps the journal.
    """

    def __init__(self, spec: ThreadSpec, originals: Originals) -> None:
        self.name = spec.name
        self._spec = spec
        self._sweep = ThreadSweep(spec.what, spec.members, spec.folder, spec.proc, originals)
        self._wanted: str | None = None
        self._sweep_at_s = 0.0
        self._since_s = 0.0
        self._swept: str | None = None
        self._foreign = False
        self.foreign_total = 0
        self._worker: Worker[str | None] = Worker(spec.name, self._work)

    @property
    def missing(self) -> tuple[str, ...]:
        """Why the lever cannot be used; empty if it can."""
        return (f"{self.name}: {self._spec.missing}",) if self._spec.missing else ()

    @property
    def held(self) -> bool:
        """Whether a thread may not have its original value."""
        return self._sweep.held or self._worker.busy

    @property
    def idle(self) -> bool:
        """Whether no regular sweep for new threads is due while this state lasts."""
        return bool(self._spec.missing) or (self._wanted is None and not self._sweep.held)

    def apply(self, granted: DesiredState, now_s: float) -> tuple[LeverResult, ...]:
        """Start a sweep if there is a new value, or the regular one is due."""
        value = self._spec.value_of(granted)
        new = value != self._wanted
        if not new and (self.idle or self._worker.busy or now_s < self._sweep_at_s):
            return ()
        before, self._wanted = self._wanted, value
        if self._spec.missing:
            if value is None:
                return ()
            error = self._spec.missing
            return (LeverResult(lever=self.name, value=value, ok=False, error=error),)
        if new:
            self._foreign = False
            self._since_s = now_s if before is None else self._since_s
        self._sweep_at_s = now_s + SWEEP_S
        self._worker.ask(value)
        return ()

    def poll(self, now_s: float) -> tuple[LeverResult, ...]:
        """The results of the sweeps since the last call."""
        return self._worker.poll(now_s)

    def look(self, now_s: float) -> tuple[LeverResult, ...]:
        """Check nothing: every sweep does."""
        return ()

    def plan(self, granted: DesiredState) -> tuple[PlannedWrite, ...]:
        """One planned write for all threads that would change."""
        value = self._spec.value_of(granted)
        if value == self._wanted or self._spec.missing:
            return ()
        values = [now for _, now in self._sweep.values()]
        if value is not None:
            values = [now for now in values if self._sweep.target(now, value) != now]
        plan = PlannedWrite(
            lever=self.name,
            target=f"{self._spec.what} of {len(values)} threads",
            before=" or ".join(sorted(set(values))),
            after=value or ORIGINAL,
            undo="every thread gets back what it had, and those it started meanwhile",
        )
        return (plan,)

    def restore(self, now_s: float) -> tuple[LeverResult, ...]:
        """Start to give every thread its original value back."""
        self._wanted = None
        if self.held:
            self._worker.ask(None)
        return ()

    def finish(self, deadline_s: float) -> tuple[LeverResult, ...]:
        """Wait for the worker thread."""
        if self._worker.wait(deadline_s):
            self._worker.stop()
        return self._worker.poll(time.monotonic())

    def states(self, now_s: float) -> tuple[LeverState, ...]:
        """The wanted value, while any thread has it."""
        if self._wanted is None or not (self._sweep.held or self._foreign):
            return ()
        age_s, foreign = now_s - self._since_s, self._foreign
        return (
            LeverState(lever=self.name, value=self._wanted, held_for_s=age_s, foreign=foreign),
        )

    def _work(self, wanted: str | None, _superseded: Superseded) -> tuple[LeverResult, ...]:
        started_s = time.monotonic()
        if wanted is not None:
            refused = attempt(self.name, wanted, self._spec.check)
            if not refused.ok:
                return (refused,)
        if wanted != self._swept:
            self._sweep.again()
            self._swept = wanted
        swept = self._sweep.give_back() if wanted is None else self._sweep.give(wanted)
        self._foreign = self._foreign or swept.foreign > 0
        self.foreign_total += swept.foreign
        if not swept.moved and not swept.problems:
            return ()
        error = " ".join(swept.problems or ())
        took_ms = (time.monotonic() - started_s) * 1e3
        value = wanted or ORIGINAL
        return (
            LeverResult(lever=self.name, value=value, ok=not error, error=error, took_ms=took_ms),
        )
