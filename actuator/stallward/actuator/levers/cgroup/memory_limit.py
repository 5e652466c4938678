"""The memory limit of a group. On a paused group it squeezes: the pages go to swap.

The soft limit is v2 memory.high, at which the kernel never kills, or v1 memory.limit_in_bytes,
which is hard already. The hard limit is v2 memory.max.

A write may block while the kernel reclaims, so a thread makes it, in bounded steps. Lowering a
limit kills nothing: page faults of a v1 group wait for memory under it (see ``oom_wait``), and a v2
hard limit is never written below the usage, since reclaim comes first. System calls of a v1 group
do not wait, they fail; so the guard limits a running one only where reclaim succeeds.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Final

from stallward.actuator.errors import (
    ForeignError,
    KillsAgainError,
    LeverError,
    NotTakenError,
)
from stallward.actuator.levers.base.file_lever import ORIGINAL, RETRY_S, Aside
from stallward.actuator.levers.base.held_setting import HeldSetting
from stallward.actuator.levers.base.lever import ASIDE_S, LeverDefaults, PlannedWrite
from stallward.actuator.levers.base.originals import Originals
from stallward.actuator.levers.base.worker import Superseded, Worker
from stallward.actuator.levers.cgroup.limit_writer import LimitSpec, LimitWriter
from stallward.actuator.record.lever_result import LeverResult
from stallward.agent.desired import DesiredState
from stallward.agent.errors import StallwardError
from stallward.agent.sample import LeverState

_RESCUE_S: Final = 0.5
"""How long the thread may take that writes the original beside a hanging one."""


class MemoryLimitLever(LeverDefaults):
    """A memory limit of one group, which a thread writes.

    Args:
        spec: The description.
        originals: Keeps the journal.
        aside_s: How long the lever steps aside after a foreign change.
        lock: Held while the limit's file is written or read.
    """

    def __init__(
        self,
        spec: LimitSpec,
        originals: Originals,
        *,
        aside_s: float = ASIDE_S,
        lock: threading.Lock | None = None,
    ) -> None:
        self.name = spec.name
        self._spec = spec
        self._limit = None if spec.setting is None else HeldSetting(spec.setting, originals)
        self._lock = lock or threading.Lock()
        self._writer = LimitWriter(spec, self._limit, self._lock)
        self._aside = Aside(wait_s=aside_s)
        self._wanted: int | None = None
        self._failed_at_s = 0.0
        self._since_s = 0.0
        self._worker: Worker[int | None] = Worker(spec.name, self._work)

    @property
    def missing(self) -> tuple[str, ...]:
        """Why this lever cannot be used; empty if it can."""
        return (f"{self.name}: {self._spec.missing}",) if self._spec.missing else ()

    @property
    def remark(self) -> str:
        """What a user should know about how it works here; empty for nothing."""
        wait = self._spec.wait
        return f"{self.name}: {wait.why_not}" if wait is not None and wait.why_not else ""

    @property
    def limit_bytes(self) -> int | None:
        """The limit that is in force or being approached; ``None`` for the original one."""
        return self._writer.in_force if self._failed_at_s or self._aside.foreign else self._wanted

    @property
    def held(self) -> bool:
        """Whether the limit may not be the original one."""
        waits = self._spec.wait is not None and self._spec.wait.held
        return self._worker.busy or waits or (self._limit is not None and self._limit.held)

    @property
    def busy(self) -> bool:
        """Whether a write is under way."""
        return self._worker.busy

    @property
    def hard(self) -> bool:
        """Whether it is a v1 limit: page faults wait under it, and system calls fail."""
        return self._spec.wait is not None

    def wait(self, deadline_s: float) -> bool:
        """Wait for a write that is under way; whether it has ended."""
        return self._worker.wait(deadline_s)

    @property
    def idle(self) -> bool:
        """Whether no retry is due."""
        return not self._failed_at_s and not (self._aside.foreign and self._wanted is not None)

    @property
    def foreign_total(self) -> int:  # type: ignore[override]
        """How many foreign changes there were while the limit was held."""
        return self._aside.total

    def apply(self, granted: DesiredState, now_s: float) -> tuple[LeverResult, ...]:
        """Request the limit that ``granted`` holds, or the original one; returns at once."""
        wanted = self._spec.value_of(granted)
        if wanted == self._wanted and not self._due(now_s):
            return ()
        if wanted is not None and self._wanted is None:
            self._since_s = now_s
        new, self._wanted = wanted != self._wanted, wanted
        if self._limit is None:
            if wanted is None or not new:
                return ()
            error = self._spec.missing
            return (LeverResult(lever=self.name, value=str(wanted), ok=False, error=error),)
        self._failed_at_s = 0.0
        self._aside.end()
        if wanted is not None or self.held:
            self._worker.ask(wanted)
        return ()

    def _due(self, now_s: float) -> bool:
        if self._worker.busy:
            return False
        if self._aside.foreign and self._wanted is not None:
            return self._aside.over(now_s)
        return self._failed_at_s > 0 and now_s >= self._failed_at_s + RETRY_S

    def poll(self, now_s: float) -> tuple[LeverResult, ...]:
        """The results of the writing thread since the last call."""
        return self._worker.poll(now_s)

    def look(self, now_s: float) -> tuple[LeverResult, ...]:
        """Read the limit; step aside if there was a foreign change."""
        limit = self._limit
        if limit is None or self._worker.busy or not self._lock.acquire(blocking=False):
            return ()
        before = limit.taken
        try:
            self._look(limit, now_s)
        except StallwardError as error:
            return (LeverResult(lever=self.name, value=before or "", ok=False, error=str(error)),)
        finally:
            self._lock.release()
        if before is not None and not limit.held and self._wanted is not None:
            self._failed_at_s = now_s - RETRY_S  # its group was removed, and perhaps made anew
        return ()

    def _look(self, limit: HeldSetting, now_s: float) -> None:
        """Check the limit, and that the group waits under it; call with the lock held."""
        try:
            limit.look()
        except ForeignError as error:
            self._step_aside(error, now_s)
            self._writer.end_wait()
            raise
        if self._spec.wait is not None:
            try:
                self._spec.wait.check()
            except KillsAgainError:
                self._lift(now_s)
                self._worker.ask(None)
                raise
        if self._writer.near_a_kill():
            self._failed_at_s = now_s
            self._worker.ask(None)
            raise LeverError(f"{self.name}: lifted, since the kernel could kill under it soon.")

    def _lift(self, now_s: float) -> None:
        """Step aside because another program lets the kernel kill."""
        self._aside.step("", now_s)
        self._writer.in_force = None

    def _step_aside(self, error: ForeignError, now_s: float) -> None:
        self._aside.step(error.value, now_s)
        self._writer.in_force = int(error.value) if error.value.isdigit() else None
        if self._wanted is None:
            self._aside.end()

    def plan(self, granted: DesiredState) -> tuple[PlannedWrite, ...]:
        """One planned write if the limit would change."""
        wanted, setting = self._spec.value_of(granted), self._spec.setting
        before = None if setting is None else setting.read()
        if setting is None or before is None or wanted == self._wanted:
            return ()
        plan = PlannedWrite(
            lever=self.name,
            target=str(setting.path),
            before=before,
            after=ORIGINAL if wanted is None else str(wanted),
            undo=f"write {before} to {setting.path}",
        )
        return (plan,)

    def restore(self, now_s: float) -> tuple[LeverResult, ...]:
        """Request the original limit."""
        self._wanted, self._failed_at_s = None, 0.0
        self._aside.end()
        if self.held:
            self._worker.ask(None)
        return ()

    def finish(self, deadline_s: float) -> tuple[LeverResult, ...]:
        """Wait for the writing thread; if it hangs, another thread writes the original."""
        if self._worker.wait(deadline_s):
            self._worker.stop()
        elif self._limit is not None:
            write = self._limit.overtake
            rescue: Worker[None] = Worker(self.name, lambda *_: (self._attempt(None, write),))
            rescue.ask(None)
            rescue.wait(deadline_s + _RESCUE_S)
            return (*self._worker.poll(time.monotonic()), *rescue.poll(time.monotonic()))
        return self._worker.poll(time.monotonic())

    def states(self, now_s: float) -> tuple[LeverState, ...]:
        """A foreign value, or a hard limit that is held."""
        aside = self._aside
        if aside.foreign:
            age_s = now_s - aside.since_s
            return (
                LeverState(lever=self.name, value=aside.value, held_for_s=age_s, foreign=True),
            )
        taken = None if self._limit is None else self._limit.taken
        if taken is None or self._spec.in_slot_state:
            return ()
        return (LeverState(lever=self.name, value=taken, held_for_s=now_s - self._since_s),)

    def _work(self, wanted: int | None, superseded: Superseded) -> tuple[LeverResult, ...] | None:
        finished: list[bool] = []
        result = self._attempt(
            wanted, lambda: finished.append(self._writer.write(wanted, superseded))
        )
        return None if finished == [False] else (result,)

    def _attempt(self, wanted: int | None, action: Callable[[], object]) -> LeverResult:
        started_s, error = time.monotonic(), ""
        try:
            action()
        except ForeignError as failure:
            self._step_aside(failure, time.monotonic())
            error = str(failure)
            with self._lock, contextlib.suppress(StallwardError):
                self._writer.end_wait()
        except KillsAgainError as failure:
            self._lift(time.monotonic())
            error = str(failure)
        except NotTakenError as failure:
            error = str(failure)  # the value that the kernel made of it is in force
        except (StallwardError, OSError) as failure:
            self._failed_at_s, error = time.monotonic(), str(failure)
        else:
            self._writer.in_force = wanted
        taken = self._limit.taken if self._limit is not None else None
        value = ORIGINAL if wanted is None else str(wanted) if error else taken or str(wanted)
        took_ms = (time.monotonic() - started_s) * 1e3
        return LeverResult(
            lever=self.name, value=value, ok=not error, error=error, took_ms=took_ms
        )
