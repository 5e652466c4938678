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
import errno
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stallward.actuator.errors import (
    ForeignError,
    KernelFileError,
    KillsAgainError,
    LeverError,
    NotTakenError,
)
from stallward.actuator.journal.entries import FileValue
from stallward.actuator.levers.base.file_lever import ORIGINAL, RETRY_S, Aside
from stallward.actuator.levers.base.held_setting import HeldSetting, LimitFile, PlainFile
from stallward.actuator.levers.base.lever import ASIDE_S, PlannedWrite
from stallward.actuator.levers.base.originals import Originals
from stallward.actuator.levers.base.worker import Superseded, Worker, WorkerLever
from stallward.actuator.levers.cgroup.reclaim import (
    LEAST_LEFT_BYTES,
    STEP_BYTES,
    STUCK_TRIES,
    read_usage,
    reclaim,
    why_unreclaimable,
)
from stallward.actuator.record.lever_result import LeverResult
from stallward.agent.desired import MIB, DesiredState
from stallward.agent.errors import StallwardError
from stallward.agent.sample import LeverState

if TYPE_CHECKING:
    from stallward.actuator.levers.cgroup.oom_wait import OomWait

# ---------- Moves a memory limit towards a wanted value, in bounded steps
# Writing a limit below what the group uses reclaims before the write returns (0.2-0.8 s for
# 300 MB), and v1 may refuse with EBUSY after having reclaimed most. So the limit moves step by step:
# between two steps a newer request is taken up, and the latest one wins.

_MOST_STEPS: Final = 2000
_CAREFUL_PARTS: Final = 16
"""A careful step takes this part of what the group uses, but at least a megabyte."""
_SETTLE_S: Final = 0.5
"""How long a group has after a careful step to use less than the limit by itself."""


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
    wait: OomWait | None = None
    """Has the group wait for memory under a limit that would kill otherwise (v1)."""
    missing: str = ""
    """Why the lever cannot be used; empty if it can."""
    in_slot_state: bool = True
    """Whether a sample shows it as the slot's limit already."""
    check: Callable[[], None] = field(default=lambda: None)
    """Called before each change; raises to refuse it."""


class LimitWriter:
    """Writes one memory limit.

    Where a v1 group cannot be made to wait for memory, its limit is lowered with care: by small
    steps, and only as long as the group stays below each of them by itself, so that the limit
    takes only pages that it does not miss.

    Args:
        spec: The description.
        limit: The setting; ``None`` where the lever is missing.
        lock: Held while the limit's file is written or read.
    """

    def __init__(self, spec: LimitSpec, limit: HeldSetting | None, lock: threading.Lock) -> None:
        self._spec = spec
        self._limit = limit
        self._lock = lock
        self.in_force: int | None = None
        """The limit that was written last."""
        self.careful = False
        """Whether the kernel could kill under the limit in force."""

    def write(self, wanted: int | None, superseded: Superseded) -> bool:
        """Move to ``wanted``; false if a newer request came in before it was reached.

        Args:
            wanted: The limit; ``None`` for the original one.
            superseded: Says whether a newer request has come in.

        Raises:
            StallwardError: If the limit cannot be reached.
        """
        limit, path = self._limit, self._spec.setting
        if limit is None or path is None:
            raise LeverError(self._spec.missing)
        if wanted is None:
            with self._lock:
                self._put_back(limit)
            return True
        self._spec.check()
        with self._lock:  # a temporary limit of reclaim is no original
            original = limit.save()
            wanted = int(path.bounded(str(wanted), original))
            if isinstance(original, FileValue) and original.value == str(wanted):
                self._put_back(limit)  # under its own limit the group lives as without the daemon
                self.in_force = wanted
                return True
            try:
                self.careful = careful = self._may_kill()
            except KillsAgainError:
                self._put_back(limit)
                raise
        stuck = 0
        for _ in range(_MOST_STEPS):
            usage = read_usage(self._spec.usage)
            if careful and usage > wanted:
                if self._careful_step(limit, wanted, usage, superseded):
                    return True
            elif self._step(limit, wanted, usage):
                return True
            if superseded():
                return False
            stuck = 0 if read_usage(self._spec.usage) < usage else stuck + 1
            if stuck >= STUCK_TRIES:
                break
        why, step = why_unreclaimable(self._spec.usage.parent)
        because = f": {why}" if why else ""
        raise LeverError(
            f"{path.path}: {usage} bytes in use cannot be reclaimed to {wanted}{because}.",
            next_step=f"Give the group a larger floor. {step}",
        )

    def _put_back(self, limit: HeldSetting) -> None:
        """Put the original limit back, and then let the kernel kill again."""
        try:
            limit.put_back()
        finally:  # a foreign limit stays, and is not ours to wait for
            self.careful = False
            self.end_wait()

    def end_wait(self) -> None:
        """Put back whether the group waits, unless a limit of ours is still in force."""
        held = self._limit is not None and self._limit.held
        if self._spec.wait is not None and not held:
            self._spec.wait.end(self._spec.name)

    def _may_kill(self) -> bool:
        """Have the group wait under its limit; return whether the kernel may kill all the same."""
        if self._spec.wait is None:
            return False
        try:
            self._spec.wait.begin(self._spec.name)
        except KillsAgainError:
            raise
        except (StallwardError, OSError):
            return True
        return False

    def near_a_kill(self) -> bool:
        """Whether the group has grown up to a limit under which the kernel could kill."""
        if not self.careful or self.in_force is None:
            return False
        return read_usage(self._spec.usage) > self.in_force - LEAST_LEFT_BYTES

    def _step(self, limit: HeldSetting, wanted: int, usage: int) -> bool:
        """Take one bounded step towards the limit; true once it is reached."""
        step = max(wanted, usage - STEP_BYTES)
        if self._spec.reclaim_first is not None:
            if usage > wanted:
                reclaim(self._spec.reclaim_first, usage - step)
            step = max(wanted, read_usage(self._spec.usage))
        return self._move(limit, step) and step == wanted

    def _move(self, limit: HeldSetting, step: int) -> bool:
        """Write a limit; false if the kernel refuses because too much is in use."""
        try:
            with self._lock:
                limit.move(str(step))
        except KernelFileError as error:
            if error.number not in {errno.EBUSY, errno.EINTR}:
                raise
            return False
        self.in_force = step
        return True

    def _careful_step(
        self, limit: HeldSetting, wanted: int, usage: int, superseded: Superseded
    ) -> bool:
        """Take a small step; lift the limit if the group does not stay below it by itself.

        Raises:
            LeverError: If it does not.
        """
        step = max(wanted, usage - max(usage // _CAREFUL_PARTS, MIB))
        if not self._move(limit, step):
            return False
        until_s = time.monotonic() + _SETTLE_S
        while time.monotonic() < until_s and not superseded():
            time.sleep(_SETTLE_S / 10)
        if read_usage(self._spec.usage) > step - LEAST_LEFT_BYTES:
            with self._lock:
                self._put_back(limit)
            self.in_force = None
            raise LeverError(
                f"{self._spec.name}: the group needs more than {step} bytes, and the kernel could "
                "kill in it under a lower limit.",
                next_step="Let the daemon write the group's memory.oom_control.",
            )
        return step == wanted


_RESCUE_S: Final = 0.5
"""How long the thread may take that writes the original beside a hanging one."""


class MemoryLimitLever(WorkerLever[int | None]):
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
        self.name, self.why_missing = spec.name, spec.missing
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
            return (self._result(str(wanted), self.why_missing),)
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

    def look(self, now_s: float) -> tuple[LeverResult, ...]:
        """Read the limit; step aside if there was a foreign change."""
        limit = self._limit
        if limit is None or self._worker.busy or not self._lock.acquire(blocking=False):
            return ()
        before = limit.taken
        try:
            self._look(limit, now_s)
        except StallwardError as error:
            return (self._result(before or "", str(error)),)
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
        results = super().finish(deadline_s)
        if self._limit is None or not self._worker.busy:
            return results
        write = self._limit.overtake
        rescue: Worker[None] = Worker(self.name, lambda *_: (self._attempt(None, write),))
        rescue.ask(None)
        rescue.wait(deadline_s + _RESCUE_S)
        return (*results, *self._worker.poll(time.monotonic()), *rescue.poll(time.monotonic()))

    def states(self, now_s: float) -> tuple[LeverState, ...]:
        """A foreign value, or a hard limit that is held."""
        if self._aside.foreign:
            return self._aside.states(self.name, now_s)
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
        return self._result(value, error, took_s=time.monotonic() - started_s)
