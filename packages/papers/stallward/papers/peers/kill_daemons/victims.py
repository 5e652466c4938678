"""The victims of rules that end background work: single processes, and whole groups. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from stallward.agent.controller import Decision
from stallward.agent.desired import RELEASED, DesiredState, ProcessRef, SlotDesire
from stallward.agent.observation.available import available_bytes
from stallward.agent.sample import GroupSample, ProcessSample, Sample

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


# ---------- The zone as the machine that a daemon would see in /proc/meminfo. Pure.
# The daemons are written for a whole machine. A sandbox or a slice has a limit of its own, so the
# limit takes the place of MemTotal, and ``observation.available`` that of MemAvailable. Swap is the
# machine's. Where the zone is the whole machine, everything is the machine's own.


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneMemory:
    """The memory of the zone, by the names of /proc/meminfo."""

    total_bytes: int
    available_bytes: int
    anon_bytes: int
    swap_total_bytes: int
    swap_free_bytes: int

    @property
    def available_share(self) -> float:
        """MemAvailable over MemTotal."""
        return self.available_bytes / self.total_bytes

    @property
    def swap_free_share(self) -> float:
        """SwapFree over SwapTotal; 0 without swap."""
        return self.swap_free_bytes / self.swap_total_bytes if self.swap_total_bytes else 0.0


def zone_memory(sample: Sample, zone_limit_bytes: int) -> ZoneMemory | None:
    """The memory of the zone; ``None`` where the sample does not tell it.

    Args:
        sample: The sample.
        zone_limit_bytes: The zone's limit, where the sample does not have it.
    """
    node, zone = sample.node, sample.zone
    total = zone.memory_limit_bytes or zone_limit_bytes
    available = available_bytes(sample, zone_limit_bytes)
    if available is None:
        return None
    anon = zone.anon_bytes
    if anon is None:
        anon = (zone.memory_usage_bytes or 0) - (zone.file_bytes or 0)
    return ZoneMemory(
        total_bytes=total,
        available_bytes=available,
        anon_bytes=max(anon, 0),
        swap_total_bytes=node.swap_total_bytes or 0,
        swap_free_bytes=node.swap_free_bytes or 0,
    )


def reclaim_count(sample: Sample) -> int | None:
    """A counter that rises while reclaim works in the zone; ``None`` where there is none.

    It counts the pages that reclaim looks at in the zone (``pgscan``). A cgroup v1 does not count
    them, and /proc/vmstat leaves out what is reclaimed for a limit. There it counts how often the
    zone was at its limit, which starts reclaim, and the pages that were swapped out.
    """
    if sample.zone.scanned_pages is not None:
        return sample.zone.scanned_pages
    counts = (sample.zone.max_events, sample.node.swap_out_pages, sample.node.scan_direct_pages)
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
