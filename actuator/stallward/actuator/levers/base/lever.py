"""The interface of every lever. :class:`~stallward.actuator.levers.lever_set.LeverSet` uses it.

A lever takes its own field out of the whole granted state, so that a new lever is one class and
one line where the levers of a kind of node are made. None of its methods may wait: a write that
may block is made by a :class:`~stallward.actuator.levers.base.worker.Worker`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol

from stallward.actuator.errors import LeverError
from stallward.actuator.kernel.target import Target
from stallward.actuator.record.lever_result import LeverResult
from stallward.agent.desired import DesiredState
from stallward.agent.sample import LeverState


def daemon_pids() -> frozenset[int]:
    """Pid 1, this process and its parent: a daemon that froze itself could thaw nothing."""
    return frozenset({1, os.getpid(), os.getppid()})


@dataclass(frozen=True, slots=True)
class ExemptProcesses:
    """Processes that must neither be frozen nor starved of memory."""

    listed: frozenset[int] = frozenset()
    """Processes that the configuration lists; the daemon's own are always exempt."""
    protected: Callable[[], frozenset[int]] = frozenset
    """The protected application's processes now, where a group may hold one."""
    _daemon: frozenset[int] = field(default_factory=daemon_pids)

    def pids(self) -> frozenset[int]:
        """All exempt processes now."""
        return self.listed | self._daemon | self.protected()

    def within(self, group: Target) -> int | None:
        """The lowest pid of an exempt process in ``group`` or below it, if there is one."""
        return min(group.among(self.pids()), default=None)

    def check(self, group: Target) -> None:
        """Refuse to act on ``group``; call right before acting, since processes move.

        Raises:
            LeverError: If an exempt process is in ``group`` or below it.
        """
        pid = self.within(group)
        if pid is not None:
            raise LeverError(f"Process {pid} in {group.name} is protected.")


Members = Callable[[], tuple[int, ...]]
"""Returns the processes that a slot or the protected application has now. Levers on processes
(nice, affinity, page advice, terminate) take it, so that they treat a cgroup and a process tree
alike."""

ASIDE_S: Final = 60.0
"""How long a lever steps aside after a foreign change, unless another value is wanted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedWrite:
    """One change that a lever would make but has not made."""

    lever: str
    target: str
    """The file that would be written, or what would be done, e.g. ``SIGSTOP to 3 processes``."""
    before: str
    """The value now; empty where it cannot be read."""
    after: str
    undo: str
    """How it is undone."""


class Lever(Protocol):
    """One thing on a node that can be moved and put back.

    ``idle`` keeps a tick that changes nothing at microseconds: while a lever is idle and the
    granted state stays the same, :meth:`apply` is not called.
    """

    @property
    def name(self) -> str:
        """The lever's name, e.g. ``cpu_weight:hog0``."""

    @property
    def missing(self) -> tuple[str, ...]:
        """Why the lever, or a part of it, cannot be used here; empty if it can."""

    @property
    def held(self) -> bool:
        """Whether anything may not have its original value."""

    @property
    def idle(self) -> bool:
        """Whether nothing is left to do for the last state, no retry and no regular check."""

    @property
    def foreign_total(self) -> int:
        """How many foreign changes there were to what this lever held."""

    def apply(self, granted: DesiredState, now_s: float) -> Iterable[LeverResult]:
        """Put the lever's part of ``granted`` into force; write only what differs."""

    def poll(self, now_s: float) -> Iterable[LeverResult]:
        """Report what was finished since the last call, and what takes longer than it should."""

    def look(self, now_s: float) -> Iterable[LeverResult]:
        """Read again what is held; step aside if there was a foreign change."""

    def plan(self, granted: DesiredState) -> Iterable[PlannedWrite]:
        """List what :meth:`apply` would change now."""

    def restore(self, now_s: float) -> Iterable[LeverResult]:
        """Start to put everything back; harmless if it is already."""

    def finish(self, deadline_s: float) -> Iterable[LeverResult]:
        """Wait until what :meth:`restore` started is done, at most until ``deadline_s``."""

    def states(self, now_s: float) -> Iterable[LeverState]:
        """List what the lever holds now, and what it has stepped aside from."""


class SlotPause(Lever, Protocol):
    """The pause of one slot."""

    def requested(self) -> bool:
        """Whether a pause of the slot is requested, by this lever or by another program."""

    def frozen(self) -> bool:
        """Whether the whole slot is stopped now."""


class SlotLimit(Lever, Protocol):
    """The memory limit of one slot."""

    @property
    def limit_bytes(self) -> int | None:
        """The limit that is in force or being approached; ``None`` for the original one."""

    @property
    def busy(self) -> bool:
        """Whether a write is under way."""

    @property
    def remark(self) -> str:
        """What a user should know about how it works here; empty for nothing."""

    @property
    def hard(self) -> bool:
        """Whether system calls of a program fail under it where no memory can be reclaimed."""

    def wait(self, deadline_s: float) -> bool:
        """Wait for a write that is under way, until a time of CLOCK_MONOTONIC; whether it ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotLevers:
    """The levers of one slot; pause and limit are there also where that lever is missing."""

    pause: SlotPause
    limit: SlotLimit
    others: tuple[Lever, ...] = ()
    """These are applied after the pauses and limits of all slots, and in order."""

    @property
    def every(self) -> tuple[Lever, ...]:
        """All of them."""
        return (self.pause, self.limit, *self.others)


class LeverDefaults:
    """The defaults of a lever that finishes at once and has no file to check."""

    name = ""
    foreign_total = 0
    why_missing = ""
    """Why the lever cannot be used here; empty if it can."""

    @property
    def missing(self) -> tuple[str, ...]:
        """Why the lever cannot be used here, after its name; empty if it can."""
        return (f"{self.name}: {self.why_missing}",) if self.why_missing else ()

    def _result(self, value: str, error: str = "", *, took_s: float = 0.0) -> LeverResult:
        """The result of a change, which failed if there is an error."""
        return LeverResult(
            lever=self.name, value=value, ok=not error, error=error, took_ms=took_s * 1e3
        )

    @property
    def remark(self) -> str:
        """Empty: there is nothing that a user should know."""
        return ""

    @property
    def idle(self) -> bool:
        """True: nothing is left to do."""
        return True

    def poll(self, now_s: float) -> tuple[LeverResult, ...]:
        """Report nothing: :meth:`apply` finishes at once."""
        return ()

    def look(self, now_s: float) -> tuple[LeverResult, ...]:
        """Check nothing: there is no file to read."""
        return ()

    def plan(self, granted: DesiredState) -> tuple[PlannedWrite, ...]:
        """List nothing."""
        return ()

    def finish(self, deadline_s: float) -> tuple[LeverResult, ...]:
        """Wait for nothing: :meth:`restore` finishes at once."""
        return ()

    def states(self, now_s: float) -> tuple[LeverState, ...]:
        """List nothing."""
        return ()
