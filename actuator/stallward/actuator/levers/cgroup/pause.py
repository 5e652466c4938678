"""The pause of a group: cgroup.freeze of the v2 hierarchy, or else the v1 freezer.

Freezing is asynchronous. The request is written at once; later ticks check whether it took
effect. A group that is not frozen in time is thawed again, since "freezing" can last for ever and
a late freeze would be a surprise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stallward.actuator.errors import LeverError
from stallward.actuator.journal.entries import Frozen
from stallward.actuator.kernel.cgroups import Cgroup
from stallward.actuator.kernel.files import FileWriter, OpenFile, read_text, why_unreadable
from stallward.actuator.levers.base.file_lever import RETRY_S, Aside
from stallward.actuator.levers.base.lever import (
    ASIDE_S,
    ExemptProcesses,
    LeverDefaults,
    PlannedWrite,
)
from stallward.actuator.levers.base.originals import Originals
from stallward.actuator.record.lever_result import LeverResult, attempt
from stallward.agent.desired import DesiredState
from stallward.agent.sample import LeverState

# ---------- The two freezers of cgroups


@dataclass(frozen=True, slots=True, kw_only=True)
class Freezer:
    """The files of one group's freezer."""

    path: Path
    """The file that is written."""
    freeze: str
    """The word that freezes the group."""
    thaw: str
    """The word that thaws the group."""
    asked: OpenFile
    """The file that says whether a freeze of this very group is requested."""
    asked_word: bytes
    """The content of ``asked`` while a freeze is requested."""
    state: OpenFile
    """The file that says whether the whole group is frozen."""
    state_word: bytes
    """A line of ``state`` while the whole group is frozen."""

    def requested(self) -> bool:
        """Whether a freeze of this group is requested now."""
        content = self.asked.read()
        return content is not None and content.strip() == self.asked_word

    def frozen(self) -> bool:
        """Whether the whole group is frozen now, be it by itself or by an ancestor."""
        content = self.state.read()
        return content is not None and self.state_word in content.splitlines()

    def identity(self) -> int | None:
        """The file's inode number, which changes when the group is removed and made again."""
        try:
            return self.path.stat().st_ino
        except OSError:
            return None


def find_freezer(group: Cgroup) -> tuple[Freezer | None, str]:
    """Return the freezer of a group, or ``None`` and why there is none.

    The v2 freezer is preferred: processes that it has frozen can still be killed.
    """
    folder = group.unified_dir
    why = ""
    if folder is not None and group.exists():
        why = why_unreadable(folder / "cgroup.freeze")
    if folder is not None and not why:
        freezer = Freezer(
            path=folder / "cgroup.freeze",
            freeze="1",
            thaw="0",
            asked=OpenFile(folder / "cgroup.freeze"),
            asked_word=b"1",
            state=OpenFile(folder / "cgroup.events"),
            state_word=b"frozen 1",
        )
        return freezer, ""
    v1 = group.v1_dir("freezer")
    if v1 is not None and not why_unreadable(v1 / "freezer.state"):
        freezer = Freezer(
            path=v1 / "freezer.state",
            freeze="FROZEN",
            thaw="THAWED",
            asked=OpenFile(v1 / "freezer.self_freezing"),
            asked_word=b"1",
            state=OpenFile(v1 / "freezer.state"),
            state_word=b"FROZEN",
        )
        return freezer, ""
    if folder is None:
        return None, "no v2 hierarchy to freeze in"
    return (
        None,
        f"{why} (kernel 5.2 or newer has it), and the group is not in a v1 freezer hierarchy",
    )


CONFIRM_S: Final = 1.0
"""A group that is not frozen after this time is thawed again."""
_THAW_S: Final = 0.2


class PauseLever(LeverDefaults):
    """The pause of one group.

    Args:
        group: The background group.
        originals: Keeps the journal.
        wanted_of: Says whether a state pauses the group.
        confirm_s: How long freezing may take.
        exempt: Processes that must not be frozen: a group with one of them is not.
        aside_s: How long the lever steps aside after another program thawed the group.
    """

    def __init__(
        self,
        group: Cgroup,
        originals: Originals,
        wanted_of: Callable[[DesiredState], bool],
        *,
        confirm_s: float = CONFIRM_S,
        exempt: ExemptProcesses | None = None,
        aside_s: float = ASIDE_S,
    ) -> None:
        self.name = f"pause:{group.short_name}"
        self._group = group
        self._originals = originals
        self._wanted_of = wanted_of
        self._confirm_s = confirm_s
        self._exempt = exempt or ExemptProcesses()
        self._freezer, self.why_missing = find_freezer(group)
        self._wanted = False
        self._pending: tuple[bool, float] | None = None
        self._retry_at_s = 0.0
        self._writer = FileWriter(Path() if self._freezer is None else self._freezer.path)
        self._file: int | None = None
        self._aside = Aside(wait_s=aside_s)
        self.held = False
        """Whether this lever may have frozen the group; it thaws only what it has frozen."""
        self._foreign_freeze = self._freezer is not None and self._freezer.requested()
        """Whether at the last check another program had frozen the group."""
        if self._freezer is not None and not self._foreign_freeze:
            originals.note(Frozen(self._freezer.path))

    @property
    def idle(self) -> bool:
        """Whether nothing is left to do for the wanted state."""
        frozen = self.held or self._foreign_freeze
        settled = self._wanted == frozen and self._pending is None
        return settled and not self._aside.foreign

    @property
    def foreign_total(self) -> int:  # type: ignore[override]
        """How often another program thawed what this lever had frozen."""
        return self._aside.total

    def requested(self) -> bool:
        """Whether this lever or, at the last check, another program wants the group frozen."""
        return self.held or self._foreign_freeze

    def frozen(self) -> bool:
        """Whether the whole group is frozen now, by this lever or by an ancestor."""
        return self._freezer is not None and self._freezer.frozen()

    def apply(self, granted: DesiredState, now_s: float) -> tuple[LeverResult, ...]:
        """Request the pause or its end, unless it is requested already."""
        paused, self._wanted = self._wanted_of(granted), self._wanted_of(granted)
        if not paused:
            self._retry_at_s = 0.0
            self._aside.end()
            return self._thaw(now_s) if self.held else ()
        if self.held or now_s < self._retry_at_s:
            return ()
        if self._aside.foreign:
            if not self._aside.over(now_s):
                return ()
            self._aside.end()
        if self._freezer is not None and self._freezer.requested():
            self._foreign_freeze = True  # whoever froze the group thaws it
            return ()
        self._foreign_freeze = False
        return self._write(True, now_s)

    def _thaw(self, now_s: float) -> tuple[LeverResult, ...]:
        if self._freezer is None or not self._freezer.path.exists():
            self._release()
            return ()
        return self._write(False, now_s)

    def _write(self, freeze: bool, now_s: float) -> tuple[LeverResult, ...]:
        value = "1" if freeze else "0"
        result = attempt(self.name, value, lambda: self._ask(freeze))
        self._pending = (freeze, now_s) if result.ok else None
        if not result.ok:
            self._retry_at_s = now_s + RETRY_S
        return (result,)

    def _ask(self, freeze: bool) -> None:
        freezer = self._freezer
        if freezer is None:
            raise LeverError(self.why_missing)
        if freeze:
            self._exempt.check(self._group)
            self._originals.ensure(Frozen(freezer.path))
            self._file = freezer.identity()
            self._writer.open()  # thawing must need no descriptor that may not be had then
        # A write that fails half way is undone, too, but not where there is no file.
        self.held = self.held or freezer.path.exists()
        self._writer.write(freezer.freeze if freeze else freezer.thaw)
        if not freeze and freezer.requested():
            raise LeverError(f"{freezer.path}: still asks for a freeze after it was thawed.")
        self.held = freeze
        if not freeze:
            self._release()

    def _release(self) -> None:
        """Note that this lever does not freeze the group any more."""
        self.held = False
        if self._freezer is not None:
            self._writer.close()
            self._originals.settle(Frozen(self._freezer.path))

    def look(self, now_s: float) -> tuple[LeverResult, ...]:
        """Read the file: another program may have frozen or thawed the group."""
        freezer = self._freezer
        if freezer is None:
            return ()
        asked = freezer.requested()
        if not self.held:
            self._foreign_freeze = asked
            return ()
        if asked:
            return ()
        self._pending = None
        self._release()
        if freezer.identity() != self._file:
            return ()  # the group was removed or made anew: it is paused again if still wanted
        self._aside.step("0", now_s)
        error = f"another program thawed it; not paused again for {self._aside.wait_s:g} s"
        return (self._result("1", error),)

    def poll(self, now_s: float) -> tuple[LeverResult, ...]:
        """Check whether the request took effect; undo a freeze that did not in time."""
        if self._pending is None:
            return ()
        freeze, asked_s = self._pending
        waited_s = now_s - asked_s
        if self.frozen() == freeze or not self._group.exists():
            self._pending = None
            return ()
        if waited_s < (self._confirm_s if freeze else _THAW_S):
            return ()
        self._pending = None
        if freeze:
            self._retry_at_s = now_s + RETRY_S
            undone = attempt(self.name, "0", lambda: self._ask(False))
            error = f"not frozen after {waited_s:.1f} s, thawed again. {undone.error}".strip()
        else:
            error = f"still frozen after {waited_s:.1f} s: {self._frozen_ancestor()}"
        return (self._result("1" if freeze else "0", error, took_s=waited_s),)

    def _frozen_ancestor(self) -> str:
        root, name = self._group.hierarchy.unified_root, self._group.name
        while root is not None and (name := name.rpartition("/")[0]):
            if read_text(root / name / "cgroup.freeze") == "1":
                return f"its ancestor {name} is frozen"
        return "no ancestor is frozen"

    def plan(self, granted: DesiredState) -> tuple[PlannedWrite, ...]:
        """One planned write if the group would be frozen or thawed."""
        paused, freezer = self._wanted_of(granted), self._freezer
        if freezer is None or paused == freezer.requested() or (not paused and not self.held):
            return ()
        before, after = freezer.thaw, freezer.freeze
        plan = PlannedWrite(
            lever=self.name,
            target=str(freezer.path),
            before=before if paused else after,
            after=after if paused else before,
            undo=f"write {freezer.thaw} to {freezer.path}",
        )
        return (plan,)

    def restore(self, now_s: float) -> tuple[LeverResult, ...]:
        """Thaw the group if this lever has frozen it."""
        self._wanted, self._retry_at_s = False, 0.0
        self._aside.end()
        return self._thaw(now_s) if self.held else ()

    def finish(self, deadline_s: float) -> tuple[LeverResult, ...]:
        """Close the files, which a later check opens again: thawing does not wait."""
        if self._freezer is not None:
            self._freezer.asked.close()
            self._freezer.state.close()
            if not self.held:
                self._writer.close()
        return ()

    def states(self, now_s: float) -> tuple[LeverState, ...]:
        """A foreign thaw, if there is one: the slot's state shows the rest."""
        return self._aside.states(self.name, now_s, "0")
