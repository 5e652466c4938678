"""The lever on a value of threads: nice value, CPUs or timeslice, of a slot or the application.

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
from stallward.actuator.levers.process.thread_wishes import ThreadWishes
from stallward.actuator.record.lever_result import LeverResult, attempt
from stallward.agent.desired import DesiredState
from stallward.agent.sample import LeverState

SWEEP_S: Final = 1.0
"""How often the lever sweeps for new threads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadSpec:
    """The description of a lever on the threads of a slot, or of the application."""

    name: str
    """The lever's name, e.g. ``nice:hog0``."""
    what: str
    """The value that is changed, one of ``kernel/scheduling.py``."""
    members: Members
    """Returns the processes."""
    folder: Path | None
    """Their cgroup directory; ``None`` where they are a process tree."""
    wishes_of: Callable[[DesiredState], ThreadWishes | None]
    """Takes the lever's wishes from a desired state; ``None`` for the originals."""
    proc: Path
    """The /proc directory."""
    missing: str = ""
    """Why the lever cannot be used; empty if it can."""
    check: Callable[[], None] = field(default=lambda: None)
    """Called before each change; raises to refuse it."""


class ThreadLever:
    """Gives threads the values that are wanted of them, and later their originals back.

    Args:
        spec: The description.
        originals: Keeps the journal.
    """

    def __init__(self, spec: ThreadSpec, originals: Originals) -> None:
        self.name = spec.name
        self._spec = spec
        self._sweep = ThreadSweep(spec.what, spec.members, spec.folder, spec.proc, originals)
        self._wanted: ThreadWishes | None = None
        self._sweep_at_s = 0.0
        self._since_s = 0.0
        self._foreign = False
        self.foreign_total = 0
        self._worker: Worker[ThreadWishes | None] = Worker(spec.name, self._work)

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
        wishes = self._spec.wishes_of(granted)
        new = wishes != self._wanted
        if not new and (self.idle or self._worker.busy or now_s < self._sweep_at_s):
            return ()
        before, self._wanted = self._wanted, wishes
        if self._spec.missing:
            if wishes is None:
                return ()
            error = self._spec.missing
            return (LeverResult(lever=self.name, value=wishes.text, ok=False, error=error),)
        if new:
            self._foreign = False
            self._since_s = now_s if before is None else self._since_s
        self._sweep_at_s = now_s + SWEEP_S
        self._worker.ask(wishes)
        return ()

    def poll(self, now_s: float) -> tuple[LeverResult, ...]:
        """The results of the sweeps since the last call."""
        return self._worker.poll(now_s)

    def look(self, now_s: float) -> tuple[LeverResult, ...]:
        """Check nothing: every sweep does."""
        return ()

    def plan(self, granted: DesiredState) -> tuple[PlannedWrite, ...]:
        """One planned write for all threads that would change."""
        wishes = self._spec.wishes_of(granted)
        if wishes == self._wanted or self._spec.missing:
            return ()
        threads = tuple(self._sweep.values())
        if wishes is not None:
            threads = tuple(
                (thread, now) for thread, now in threads if wishes.value(thread, now) != now
            )
        values = [now for _, now in threads]
        plan = PlannedWrite(
            lever=self.name,
            target=f"{self._spec.what} of {len(values)} threads",
            before=" or ".join(sorted(set(values))),
            after=ORIGINAL if wishes is None else wishes.text,
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
            LeverState(
                lever=self.name, value=self._wanted.text, held_for_s=age_s, foreign=foreign
            ),
        )

    def _work(
        self, wanted: ThreadWishes | None, _superseded: Superseded
    ) -> tuple[LeverResult, ...]:
        started_s = time.monotonic()
        if wanted is not None:
            refused = attempt(self.name, wanted.text, self._spec.check)
            if not refused.ok:
                return (refused,)
        swept = self._sweep.give_back() if wanted is None else self._sweep.give(wanted)
        self._foreign = self._foreign or swept.foreign > 0
        self.foreign_total += swept.foreign
        if not swept.moved and not swept.problems:
            return ()
        error = " ".join(swept.problems or ())
        took_ms = (time.monotonic() - started_s) * 1e3
        value = ORIGINAL if wanted is None else wanted.text
        return (
            LeverResult(lever=self.name, value=value, ok=not error, error=error, took_ms=took_ms),
        )
