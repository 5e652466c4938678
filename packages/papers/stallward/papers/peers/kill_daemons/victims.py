"""The victims of rules that end background work: single processes, and whole groups. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from stallward.agent.controller import Decision
from stallward.agent.desired import RELEASED, DesiredState, ProcessRef, SlotDesire
from stallward.agent.sample import GroupSample, ProcessSample

EndSignal = Literal["SIGTERM", "SIGKILL"]


def highest_score(
    processes: Sequence[ProcessSample] | None, *, least: int = 0
) -> ProcessSample | None:
    """The background process with the highest OOM score; of equal ones the largest, or the first.

    Args:
        processes: All processes of a sample.
        least: A process with a lower score is no victim.
    """
    background = (p for p in processes or () if p.slot >= 0 and p.oom_score >= least)
    return min(background, key=lambda p: (-p.oom_score, -(p.rss_bytes or 0), p.pid), default=None)


def is_alive(ref: ProcessRef, processes: Sequence[ProcessSample] | None) -> bool:
    """Whether a process is still there."""
    return any(
        (p.pid, p.start_time_ticks) == (ref.pid, ref.start_time_ticks) for p in processes or ()
    )


def would_end(signal: EndSignal, victim: ProcessSample) -> Decision:
    """The decision of a rule whose killing is turned off."""
    return Decision(desired=RELEASED, reason=f"would send {signal} to {victim.pid}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessEnd:
    """A process that is being ended."""

    ref: ProcessRef
    since_s: float
    """When it was first signalled."""
    kills: bool
    """Whether by SIGKILL."""

    @classmethod
    def of(cls, victim: ProcessSample, *, since_s: float, kills: bool) -> ProcessEnd:
        """The end of a process of a sample."""
        ref = ProcessRef(pid=victim.pid, start_time_ticks=victim.start_time_ticks)
        return cls(ref=ref, since_s=since_s, kills=kills)

    def escalated(self) -> ProcessEnd:
        """The same end by SIGKILL."""
        return replace(self, kills=True)

    def decision(self, reason: str) -> Decision:
        """The decision that ends it."""
        desired = DesiredState(terminate=self.ref, kill_at_once=self.kills)
        return Decision(desired=desired, reason=f"{reason}, pid {self.ref.pid}")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupKill:
    """A group that is being killed; the wish stands for a moment, and levers act on it once."""

    slot: int
    name: str
    until_s: float

    def decision(self, slots: int, reason: str) -> Decision:
        """The decision that kills it, on a node with so many slots."""
        desired = DesiredState(
            slots=tuple(SlotDesire(terminated=i == self.slot) for i in range(slots)),
            kill_at_once=True,
        )
        return Decision(desired=desired, reason=f"{reason}: kill {self.name}")


def holds_anything(group: GroupSample) -> bool:
    """Whether there may be a process in a group: it holds memory."""
    return bool(group.memory_usage_bytes)
