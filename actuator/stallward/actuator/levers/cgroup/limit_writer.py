"""Moves a memory limit towards a wanted value, in bounded steps.

Writing a limit below what the group uses reclaims before the write returns (0.2-0.8 s for
300 MB), and v1 may refuse with EBUSY after having reclaimed most. So the limit moves step by step:
between two steps a newer request is taken up, and the latest one wins.
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from stallward.actuator.errors import KernelFileError, KillsAgainError, LeverError
from stallward.actuator.journal.entries import FileValue
from stallward.actuator.levers.base.held_setting import HeldSetting
from stallward.actuator.levers.base.setting_files import LimitFile, PlainFile
from stallward.actuator.levers.base.worker import Superseded
from stallward.actuator.levers.cgroup.oom_wait import OomWait
from stallward.actuator.levers.cgroup.reclaim import (
    LEAST_LEFT_BYTES,
    STEP_BYTES,
    STUCK_TRIES,
    read_usage,
    reclaim,
)
from stallward.actuator.levers.cgroup.unreclaimable import why_unreclaimable
from stallward.agent.desired import MIB, DesiredState
from stallward.agent.errors import StallwardError

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
