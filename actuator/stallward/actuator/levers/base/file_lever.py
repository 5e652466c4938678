"""A lever that writes one value to one file, or to several (one per disk)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from stallward.actuator.errors import ForeignError, LeverError, NotTakenError
from stallward.actuator.levers.base.held_setting import HeldSetting, PlainFile
from stallward.actuator.levers.base.lever import ASIDE_S, LeverDefaults, PlannedWrite
from stallward.actuator.levers.base.originals import Originals
from stallward.actuator.levers.base.worker import Superseded, Worker
from stallward.actuator.record.lever_result import LeverResult, attempt
from stallward.agent.desired import DesiredState
from stallward.agent.errors import StallwardError
from stallward.agent.sample import LeverState

RETRY_S: Final = 1.0
"""How long a write that failed is not tried again."""
ORIGINAL: Final = "original"
"""The value of a result that put the original back."""


@dataclass(slots=True, kw_only=True)
class Aside:
    """Whether a lever has stepped aside after a foreign change, and for how long it does."""

    wait_s: float = ASIDE_S
    """How long the lever steps aside."""
    value: str = ""
    """The foreign value; empty while there is none."""
    since_s: float = 0.0
    """When the foreign change was seen."""
    total: int = 0
    """How many foreign changes there were."""

    @property
    def foreign(self) -> bool:
        """Whether a foreign value is in force now."""
        return bool(self.value)

    def step(self, value: str, now_s: float) -> None:
        """Step aside for the foreign ``value``."""
        self.value, self.since_s = value or "?", now_s
        self.total += 1

    def over(self, now_s: float) -> bool:
        """Whether the lever has stepped aside long enough to write the same value again."""
        return now_s >= self.since_s + self.wait_s

    def end(self) -> None:
        """Stop stepping aside: another value is wanted, or the time is over."""
        self.value = ""

    def states(self, lever: str, now_s: float, value: str = "") -> tuple[LeverState, ...]:
        """The foreign value that is in force instead of the lever's, if there is one.

        Args:
            lever: The lever's name.
            now_s: The time.
            value: What is shown; the foreign value by default.
        """
        if not self.foreign:
            return ()
        age_s = now_s - self.since_s
        value = value or self.value
        return (LeverState(lever=lever, value=value, held_for_s=age_s, foreign=True),)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSpec:
    """The description of a lever that writes files."""

    name: str
    """E.g. ``cpu_weight:hog0``."""
    settings: tuple[PlainFile, ...]
    """The settings to write; empty where the lever is missing."""
    value_of: Callable[[DesiredState], str | None]
    """Takes the lever's value from a desired state; ``None`` stands for the original."""
    missing: str = ""
    """Why the lever cannot be used; empty if it can."""
    blocking: bool = False
    """Whether a write may block, so that a thread makes it."""
    check: Callable[[], None] = field(default=lambda: None)
    """Called before each change, but not before a restore; raises to refuse the change."""


class FileLever(LeverDefaults):
    """The lever that a :class:`FileSpec` describes.

    Args:
        spec: The description.
        originals: Keeps the journal.
        aside_s: How long the lever steps aside after a foreign change.
    """

    def __init__(self, spec: FileSpec, originals: Originals, *, aside_s: float = ASIDE_S) -> None:
        self.name, self.why_missing = spec.name, spec.missing
        self._spec = spec
        self._held = tuple(HeldSetting(setting, originals) for setting in spec.settings)
        self._aside = Aside(wait_s=aside_s)
        self._wanted: str | None = None
        self._retry_at_s = 0.0
        self._again = False
        self._since_s = 0.0
        self._worker: Worker[str | None] | None = None
        if spec.blocking:
            self._worker = Worker(spec.name, self._work)

    @property
    def held(self) -> bool:
        """Whether a file may not have its original value."""
        return self._busy or any(held.held for held in self._held)

    @property
    def _busy(self) -> bool:
        return self._worker is not None and self._worker.busy

    @property
    def idle(self) -> bool:
        """Whether no retry is due."""
        return not self._retry_at_s and not (self._aside.foreign and self._wanted is not None)

    @property
    def foreign_total(self) -> int:  # type: ignore[override]
        """How many foreign changes there were while the lever was held."""
        return self._aside.total

    def apply(self, granted: DesiredState, now_s: float) -> tuple[LeverResult, ...]:
        """Write the wanted value if it is new or a retry is due."""
        value = self._spec.value_of(granted)
        if value == self._wanted:
            aside, failed = self._aside.foreign and value is not None, self._retry_at_s > 0
            due = (aside and self._aside.over(now_s)) or (failed and now_s >= self._retry_at_s)
            if self._busy or not due:
                return ()
        elif self._wanted is None:
            self._since_s = now_s
        elif value is not None and not self._held:
            self._wanted = value  # what the node lacks was said when it was first wanted
            return ()
        self._wanted, self._retry_at_s = value, 0.0
        self._aside.end()
        if self._worker is None:
            return self._move(value)
        if value is not None or self.held:
            self._worker.ask(value)
        return ()

    def poll(self, now_s: float) -> tuple[LeverResult, ...]:
        """The results of the writing thread since the last call."""
        return () if self._worker is None else self._worker.poll(now_s)

    def look(self, now_s: float) -> tuple[LeverResult, ...]:
        """Read the files; step aside from one that has a foreign value."""
        if self._busy:
            return ()
        results = []
        for held in self._held:
            before = held.taken
            try:
                held.look()
            except ForeignError as error:
                results.append(self._step_aside(error, before or "", now_s))
                continue
            if before is not None and not held.held and self._wanted is not None:
                self._retry_at_s = now_s  # its group was removed, and perhaps made anew
        return tuple(results)

    def _step_aside(self, error: ForeignError, value: str, now_s: float) -> LeverResult:
        self._aside.step(error.value, now_s)
        return self._result(value, str(error))

    def plan(self, granted: DesiredState) -> tuple[PlannedWrite, ...]:
        """One write per file that would change."""
        value = self._spec.value_of(granted)
        if value == self._wanted and (value is None or not self._retry_at_s):
            return ()
        plans = []
        for held in self._held:
            setting, before = held.setting, held.setting.read()
            if value is None and not held.held:
                continue
            if before is None or (value is not None and setting.same(before, value)):
                continue
            plans.append(
                PlannedWrite(
                    lever=self.name,
                    target=str(setting.path),
                    before=before,
                    after=ORIGINAL if value is None else value,
                    undo=f"write {before} to {setting.path}",
                )
            )
        return tuple(plans)

    def restore(self, now_s: float) -> tuple[LeverResult, ...]:
        """Restore every file; one that fails does not stop the others."""
        self._wanted, self._retry_at_s = None, 0.0
        self._aside.end()
        if self._worker is None:
            return self._move(None)
        if self.held:
            self._worker.ask(None)
        return ()

    def finish(self, deadline_s: float) -> tuple[LeverResult, ...]:
        """Wait for the writing thread."""
        if self._worker is None:
            return ()
        if self._worker.wait(deadline_s):
            self._worker.stop()
        return self._worker.poll(time.monotonic())

    def states(self, now_s: float) -> tuple[LeverState, ...]:
        """The value that is held, or the foreign value that the lever has stepped aside from."""
        if self._aside.foreign:
            return self._aside.states(self.name, now_s)
        taken = next((held.taken for held in self._held if held.taken is not None), None)
        if taken is None:
            return ()
        return (LeverState(lever=self.name, value=taken, held_for_s=now_s - self._since_s),)

    def _work(self, value: str | None, _superseded: Superseded) -> tuple[LeverResult, ...]:
        return self._move(value)

    def _move(self, value: str | None) -> tuple[LeverResult, ...]:
        """Write all files; one result for all of them, or one per failure."""
        started_s = time.monotonic()
        if value is not None:
            refused = attempt(self.name, value, self._check)
            if not refused.ok:
                # What the node lacks it will lack in a second, too.
                self._retry_at_s = started_s + RETRY_S if self._held else 0.0
                return (refused,)
        tried, failed, self._again = False, [], False
        for held in self._held:
            if value is None and not held.held:
                continue
            tried = True
            result = attempt(self.name, value or ORIGINAL, partial(self._one, held, value))
            if not result.ok:
                failed.append(result)
        if self._again:
            self._retry_at_s = started_s + RETRY_S
        if failed or not tried:
            return tuple(failed)
        taken = next((h.taken for h in self._held if h.taken is not None), None)
        return (self._result(taken or ORIGINAL, took_s=time.monotonic() - started_s),)

    def _check(self) -> None:
        if not self._held:
            raise LeverError(self._spec.missing or "This node does not have this lever.")
        self._spec.check()

    def _one(self, held: HeldSetting, value: str | None) -> None:
        try:
            if value is None:
                held.put_back()
            else:
                held.move(value)
        except ForeignError as error:
            self._aside.step(error.value, time.monotonic())
            if value is None:  # the foreign value stays, and no other is wanted
                self._aside.end()
            raise
        except NotTakenError:
            raise  # the value that the kernel made of it is in force
        except (StallwardError, OSError):
            self._again = True
            raise
