"""Pausing a group: cgroup.freeze of the v2 hierarchy.

Freezing is asynchronous. The request is written at once; whether it took effect is looked at in
later ticks. What is not frozen in time is thawed again, since "freezing" can last for ever and
a late freeze would surprise everybody.
"""

from __future__ import annotations

import time
from typing import Final

from stallward.actuator.errors import LeverError
from stallward.actuator.groups import Group
from stallward.actuator.journal_entries import Frozen
from stallward.actuator.kernelfile import OpenFile, read_text, write_text
from stallward.actuator.levers.originals import Originals
from stallward.actuator.levers.result import LeverResult, attempt
from stallward.actuator.levers.spared import Spared

CONFIRM_S: Final = 1.0
"""A group that is not frozen after this long is thawed again."""
RETRY_S: Final = 1.0
"""How long a pause that failed is not tried again."""
_THAW_S: Final = 0.2


class PauseLever:
    """The pause of one group.

    Args:
        group: The background group.
        originals: Keeps the journal.
        confirm_s: How long freezing may take.
        spared: Processes with which no group is frozen.
    """

    def __init__(
        self,
        group: Group,
        originals: Originals,
        *,
        confirm_s: float = CONFIRM_S,
        spared: Spared | None = None,
    ) -> None:
        folder = group.unified_dir
        self._group = group
        self._originals = originals
        self._confirm_s = confirm_s
        self._spared = spared or Spared()
        self._name = f"pause:{group.name.rpartition('/')[2]}"
        self._freeze = None if folder is None else OpenFile(folder / "cgroup.freeze")
        self._events = None if folder is None else OpenFile(folder / "cgroup.events")
        self._pending: tuple[str, float] | None = None
        self._retry_at_s = 0.0
        self.held = False
        """Whether this lever may have frozen the group. What others freeze is theirs to thaw."""
        if self._freeze is not None and not self.requested():
            originals.note(Frozen(self._freeze.path))

    @property
    def missing(self) -> str:
        """Why this lever cannot be used; empty if it can."""
        if self._freeze is None:
            return f"{self._name}: no v2 hierarchy"
        if self._group.exists() and not self._freeze.path.exists():
            return f"{self._name}: no {self._freeze.path} (kernel 5.2 or newer has it)"
        return ""

    def requested(self) -> bool:
        """Whether the kernel is asked to freeze the group now."""
        content = None if self._freeze is None else self._freeze.read()
        return content is not None and content.strip() == b"1"

    def frozen(self) -> bool:
        """Whether the whole group is frozen now, by this lever or by an ancestor."""
        content = None if self._events is None else self._events.read()
        return content is not None and b"frozen 1" in content.splitlines()

    def apply(self, paused: bool) -> tuple[LeverResult, ...]:
        """Ask for the pause or its end; nothing if that is so already."""
        now_s = time.monotonic()
        if not paused:
            self._retry_at_s = 0.0
            if not self.held:
                return ()
        if paused == self.requested() or (paused and now_s < self._retry_at_s):
            self.held = self.held and paused
            return ()
        if not self._group.exists():
            self.held = False
            if not paused:
                return ()
        if paused and self.held:
            return (self._step_aside(now_s),)
        value = "1" if paused else "0"
        result = attempt(self._name, value, lambda: self._write(value))
        self._pending = (value, now_s) if result.ok else None
        if not result.ok:
            self._retry_at_s = now_s + RETRY_S
        return (result,)

    def _step_aside(self, now_s: float) -> LeverResult:
        self.held, self._pending = False, None
        self._retry_at_s = now_s + RETRY_S
        error = f"somebody else thawed it; not paused again for {RETRY_S:g} s"
        return LeverResult(lever=self._name, value="1", ok=False, error=error)

    def poll(self) -> tuple[LeverResult, ...]:
        """Look whether what was asked for has happened; undo a freeze that has not in time."""
        if self._pending is None:
            return ()
        value, asked_s = self._pending
        now_s = time.monotonic()
        waited_s = now_s - asked_s
        if self.frozen() == (value == "1") or not self._group.exists():
            self._pending = None
            return ()
        if waited_s < (self._confirm_s if value == "1" else _THAW_S):
            return ()
        self._pending = None
        if value == "1":
            self._retry_at_s = now_s + RETRY_S
            undone = attempt(self._name, "0", lambda: self._write("0"))
            error = f"not frozen after {waited_s:.1f} s, thawed again. {undone.error}".strip()
        else:
            error = f"still frozen after {waited_s:.1f} s: {self._frozen_ancestor()}"
        return (
            LeverResult(
                lever=self._name, value=value, ok=False, error=error, took_ms=waited_s * 1e3
            ),
        )

    def _frozen_ancestor(self) -> str:
        root, name = self._group.hierarchy.unified_root, self._group.name
        while root is not None and (name := name.rpartition("/")[0]):
            if read_text(root / name / "cgroup.freeze") == "1":
                return f"its ancestor {name} is frozen"
        return "no ancestor is frozen"

    def _write(self, value: str) -> None:
        if self._freeze is None:
            raise LeverError("There is no v2 hierarchy to freeze in.")
        if value == "1":
            self._spared.check(self._group)
        self._originals.ensure(Frozen(self._freeze.path))
        self.held = True
        write_text(self._freeze.path, value)
        self.held = value == "1"
