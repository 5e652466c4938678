"""The memory limit of a group. On a paused group it squeezes: the pages go to swap.

The soft limit is v2 memory.high, at which the kernel never kills, or v1 memory.limit_in_bytes,
which is hard already. The hard limit is v2 memory.max.

Writing a limit below what the group uses reclaims before the write returns (0.2-0.8 s for
300 MB), and v1 may refuse with EBUSY after having reclaimed most. So a thread writes the limit in
bounded steps: between two steps it takes up a newer request, and the latest one wins. A hard
limit is never written below the usage: reclaim comes first, so that lowering it kills nothing.
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from stallward.actuator.errors import ForeignError, KernelFileError, LeverError, NotTakenError
from stallward.actuator.levers.base.file_lever import ORIGINAL, RETRY_S, Aside
from stallward.actuator.levers.base.held_setting import HeldSetting
from stallward.actuator.levers.base.lever import ASIDE_S, LeverDefaults, PlannedWrite
from stallward.actuator.levers.base.originals import Originals
from stallward.actuator.levers.base.setting_files import LimitFile, PlainFile
from stallward.actuator.levers.base.worker import Superseded, Worker
from stallward.actuator.levers.cgroup.reclaim import STEP_BYTES, STUCK_TRIES, read_usage, reclaim
from stallward.actuator.record.lever_result import LeverResult
from stallward.agent.desired import DesiredState
from stallward.agent.errors import StallwardError
from stallward.agent.sample import LeverState

_MOST_STEPS: Final = 2000
_RESCUE_S: Final = 0.5
"""How long the thread may take that writes the original beside a hanging one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSpec:
    """The description of a memory limit."""

    name: str
    """The lever's name, e.g. ``limit:hog0``."""
    setting: PlainFile | LimitFile | None
    """The limit's file; ``None`` where the lever is missing."""
    usage: Path
    """The file with the bytes in use."""
    value_of: Callable[[DesiredState], int | None]
    """Takes the limit from a desired state; ``None`` stands for the original."""
    reclaim_first: Path | None = None
    """The v2 memory.reclaim file, if the limit must never be below the usage."""
    missing: str = ""
    """Why the lever cannot be used; empty if it can."""
    in_slot_state: bool = True
    """Whether a sample shows it as the slot's limit already."""
    check: Callable[[], None] = field(default=lambda: None)
    """Called before each change; raises to refuse it."""


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
        self._aside = Aside(wait_s=aside_s)
        self._wanted: int | None = None
        self._in_force: int | None = None
        self._failed_at_s = 0.0
        self._since_s = 0.0
        self._worker: Worker[int | None] = Worker(spec.name, self._work)

    @property
    def missing(self) -> tuple[str, ...]:
        """Why this lever cannot be used; empty if it can."""
        return (f"{self.name}: {self._spec.missing}",) if self._spec.missing else ()

    @property
    def limit_bytes(self) -> int | None:
        """The limit that is in force or being approached; ``None`` for the original one."""
        return self._in_force if self._failed_at_s or self._aside.foreign else self._wanted

    @property
    def held(self) -> bool:
        """Whether the limit may not be the original one."""
        return self._worker.busy or (self._limit is not None and self._limit.held)

    @property
    def busy(self) -> bool:
        """Whether a write is under way."""
        return self._worker.busy

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
            limit.look()
        except ForeignError as error:
            self._step_aside(error, now_s)
            return (LeverResult(lever=self.name, value=before or "", ok=False, error=str(error)),)
        finally:
            self._lock.release()
        if before is not None and not limit.held and self._wanted is not None:
            self._failed_at_s = now_s - RETRY_S  # its group was removed, and perhaps made anew
        return ()

    def _step_aside(self, error: ForeignError, now_s: float) -> None:
        self._aside.step(error.value, now_s)
        self._in_force = int(error.value) if error.value.isdigit() else None
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
        result = self._attempt(wanted, lambda: finished.append(self._write(wanted, superseded)))
        return None if finished == [False] else (result,)

    def _attempt(self, wanted: int | None, action: Callable[[], object]) -> LeverResult:
        started_s, error = time.monotonic(), ""
        try:
            action()
        except ForeignError as failure:
            self._step_aside(failure, time.monotonic())
            error = str(failure)
        except NotTakenError as failure:
            error = str(failure)  # the value that the kernel made of it is in force
        except (StallwardError, OSError) as failure:
            self._failed_at_s, error = time.monotonic(), str(failure)
        else:
            self._in_force = wanted
        taken = self._limit.taken if self._limit is not None else None
        value = ORIGINAL if wanted is None else str(wanted) if error else taken or str(wanted)
        took_ms = (time.monotonic() - started_s) * 1e3
        return LeverResult(
            lever=self.name, value=value, ok=not error, error=error, took_ms=took_ms
        )

    def _write(self, wanted: int | None, superseded: Superseded) -> bool:
        """Move to ``wanted``; false if a newer request came in before it was reached.

        Raises:
            StallwardError: If the limit cannot be reached.
        """
        limit, path = self._limit, self._spec.setting
        if limit is None or path is None:
            raise LeverError(self._spec.missing)
        if wanted is None:
            with self._lock:
                limit.put_back()
            return True
        self._spec.check()
        with self._lock:  # a temporary limit of reclaim is no original
            original = limit.save()
        wanted = int(path.capped(str(wanted), original))
        stuck = 0
        for _ in range(_MOST_STEPS):
            usage = read_usage(self._spec.usage)
            if self._step(limit, wanted, usage):
                return True
            if superseded():
                return False
            stuck = 0 if read_usage(self._spec.usage) < usage else stuck + 1
            if stuck >= STUCK_TRIES:
                break
        raise LeverError(
            f"{path.path}: {usage} bytes in use cannot be reclaimed to {wanted}.",
            next_step="Give the group a larger floor, or the node more swap.",
        )

    def _step(self, limit: HeldSetting, wanted: int, usage: int) -> bool:
        """Take one bounded step towards the limit; true once it is reached."""
        step = max(wanted, usage - STEP_BYTES)
        if self._spec.reclaim_first is not None:
            if usage > wanted:
                reclaim(self._spec.reclaim_first, usage - step)
            step = max(wanted, read_usage(self._spec.usage))
        try:
            with self._lock:
                limit.move(str(step))
        except KernelFileError as error:
            if error.number not in {errno.EBUSY, errno.EINTR}:
                raise
            return False
        self._in_force = step
        return step == wanted
