"""Nice values and CPUs of all threads of a slot, by a thread of its own.

There may be thousands of threads, each with a start time to read and a value to save. Once a
second it is looked for new ones, and for those that somebody else has changed.
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
"""How often it is looked for new threads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadSpec:
    """What makes a lever on the threads of a slot.

    Attributes:
        name: E.g. ``nice:hog0``.
        what: See ``thread_values``.
        members: The slot's processes.
        folder: The slot's cgroup directory; ``None`` where it is a process tree.
        value_of: What of a state this lever takes; ``None`` for the original.
        proc: Where processes are.
        missing: Why it cannot be used; empty if it can.
        check: Called before each change; raises to refuse it.
    """

    name: str
    what: str
    members: Members
    folder: Path | None
    value_of: Callable[[DesiredState], str | None]
    proc: Path
    missing: str = ""
    check: Callable[[], None] = field(default=lambda: None)


class ThreadLever:
    """Gives every thread of a slot what is wished, and each its own back.

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
        """Why it cannot be used; empty if it can."""
        return (f"{self.name}: {self._spec.missing}",) if self._spec.missing else ()

    @property
    def held(self) -> bool:
        """Whether a thread may not have what it had."""
        return self._sweep.held or self._worker.busy

    @property
    def idle(self) -> bool:
        """Whether no regular look for new threads is due while this state holds."""
        return bool(self._spec.missing) or (self._wanted is None and not self._sweep.held)

    def apply(self, granted: DesiredState, now_s: float) -> tuple[LeverResult, ...]:
        """Start what is new, or the regular look for new threads."""
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
        """What the sweeps did."""
        return self._worker.poll(now_s)

    def look(self, now_s: float) -> tuple[LeverResult, ...]:
        """Nothing: every sweep looks."""
        return ()

    def plan(self, granted: DesiredState) -> tuple[PlannedWrite, ...]:
        """One line for all threads that would change."""
        value = self._spec.value_of(granted)
        if value == self._wanted or self._spec.missing:
            return ()
        found = [now for _, now in self._sweep.values()]
        if value is not None:
            found = [now for now in found if self._sweep.target(now, value) != now]
        plan = PlannedWrite(
            lever=self.name,
            target=f"{self._spec.what} of {len(found)} threads",
            before=" or ".join(sorted(set(found))),
            after=value or ORIGINAL,
            undo="every thread gets back what it had, and those it started meanwhile",
        )
        return (plan,)

    def restore(self, now_s: float) -> tuple[LeverResult, ...]:
        """Have every thread get back what it had."""
        self._wanted = None
        if self.held:
            self._worker.ask(None)
        return ()

    def finish(self, deadline_s: float) -> tuple[LeverResult, ...]:
        """Wait for the thread."""
        if self._worker.wait(deadline_s):
            self._worker.stop()
        return self._worker.poll(time.monotonic())

    def states(self, now_s: float) -> tuple[LeverState, ...]:
        """The value that was wished, while any thread has it."""
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
