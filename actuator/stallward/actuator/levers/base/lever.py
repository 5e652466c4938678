"""What every lever is: the one interface that :class:`LeverSet` drives.

A lever takes its own field out of the whole granted state, so that a new lever is one class and
one line where the levers of a kind of node are made. None of its methods may wait: what may
block is written by a :class:`~stallward.actuator.levers.base.worker.Worker`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from stallward.actuator.record.lever_result import LeverResult
from stallward.agent.desired import DesiredState
from stallward.agent.sample import LeverState

Members = Callable[[], tuple[int, ...]]
"""The processes that a slot or the protected application has now. What acts on processes (nice,
affinity, page advice, ending) takes this, so that a cgroup and a process tree are the same."""

ASIDE_S: Final = 60.0
"""How long a lever that somebody else has moved is left alone, unless something else is wished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedWrite:
    """What a lever would do; nothing has been changed."""

    lever: str
    target: str
    """The file that would be written, or what would be done, e.g. ``SIGSTOP to 3 processes``."""
    before: str
    """What is there now; empty where nothing can be read."""
    after: str
    undo: str
    """How it is undone."""


class Lever(Protocol):
    """One thing on a node that can be moved and put back.

    ``idle`` lets a tick that changes nothing cost microseconds: while every lever is idle and
    the granted state is the last one again, :meth:`apply` is not called.
    """

    @property
    def name(self) -> str:
        """E.g. ``cpu_weight:hog0``."""

    @property
    def missing(self) -> tuple[str, ...]:
        """Why it (or a part of it) cannot be used here; empty if it can."""

    @property
    def held(self) -> bool:
        """Whether something may not be as it was."""

    @property
    def idle(self) -> bool:
        """Whether nothing is left to do for the last state, no retry and no regular look."""

    @property
    def foreign_total(self) -> int:
        """How often somebody else has changed what this lever held."""

    def apply(self, granted: DesiredState, now_s: float) -> Iterable[LeverResult]:
        """Make its part of ``granted`` so; what is so already is not written again."""

    def poll(self, now_s: float) -> Iterable[LeverResult]:
        """What has been finished since the last call, and what takes longer than it should."""

    def look(self, now_s: float) -> Iterable[LeverResult]:
        """Read what is held once more; step aside if somebody else has changed it."""

    def plan(self, granted: DesiredState) -> Iterable[PlannedWrite]:
        """What :meth:`apply` would change now."""

    def restore(self, now_s: float) -> Iterable[LeverResult]:
        """Start putting everything back; harmless if it is."""

    def finish(self, deadline_s: float) -> Iterable[LeverResult]:
        """Wait until what :meth:`restore` started is done, but not beyond ``deadline_s``."""

    def states(self, now_s: float) -> Iterable[LeverState]:
        """What is moved now, and what was left to somebody else."""


class SlotPause(Lever, Protocol):
    """The pause of one slot."""

    def requested(self) -> bool:
        """Whether the slot is asked to stand still, by this lever or by somebody else."""

    def frozen(self) -> bool:
        """Whether all of the slot stands still now."""


class SlotLimit(Lever, Protocol):
    """The memory limit of one slot."""

    @property
    def limit_bytes(self) -> int | None:
        """The limit that holds or is being worked towards; ``None`` for the original one."""

    @property
    def busy(self) -> bool:
        """Whether a write is under way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLevers:
    """The levers of one kind of node.

    ``pauses`` and ``limits`` have one entry per slot (a limit may be one that is missing);
    ``others`` are applied after them and in order.
    """

    pauses: tuple[SlotPause, ...]
    limits: tuple[SlotLimit, ...]
    others: tuple[Lever, ...] = ()
    why: str = ""
    """What of the node keeps whole groups of levers away; empty if nothing does."""

    @property
    def every(self) -> tuple[Lever, ...]:
        """All of them, pauses first."""
        return (*self.pauses, *self.limits, *self.others)


class QuietLever:
    """Defaults for levers that are always there, finish at once and have no file to look at."""

    name = ""
    foreign_total = 0

    @property
    def missing(self) -> tuple[str, ...]:
        """It is there."""
        return ()

    @property
    def idle(self) -> bool:
        """Nothing is left to do."""
        return True

    def poll(self, now_s: float) -> tuple[LeverResult, ...]:
        """Nothing takes its time."""
        return ()

    def look(self, now_s: float) -> tuple[LeverResult, ...]:
        """There is no file to look at."""
        return ()

    def plan(self, granted: DesiredState) -> tuple[PlannedWrite, ...]:
        """Nothing would change."""
        return ()

    def finish(self, deadline_s: float) -> tuple[LeverResult, ...]:
        """There is nothing to wait for."""
        return ()

    def states(self, now_s: float) -> tuple[LeverState, ...]:
        """Nothing is moved that a sample would tell."""
        return ()
